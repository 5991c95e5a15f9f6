SELECT line FROM lockline_lines WHERE NOT free
