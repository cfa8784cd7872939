"""`invaug reproduce`: every table and figure of the paper as a command, at full scale and on two cores."""
