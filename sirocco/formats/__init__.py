"""Objects in other people's formats, read as (line, members) or (line, error); no I/O."""
