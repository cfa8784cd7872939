"""What a run is asked to do: the schema, the methods, the shipped configs."""
