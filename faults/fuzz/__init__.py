"""Files of every format that invaug reads from others, mutated at random, through the doors that its commands use."""
