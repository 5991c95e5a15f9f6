UPDATE lockline_fences SET touched = touched + 1 WHERE resource = ? AND token <= ?
