"""invaug in other people's training frameworks: one module per framework, imported only when it is asked for."""
