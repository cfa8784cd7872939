"""`invaug report` and `invaug watch`: what runs say, as one page, from their files alone, without torch."""
