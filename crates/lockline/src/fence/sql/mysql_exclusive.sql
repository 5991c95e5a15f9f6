UPDATE lockline_fences SET touched = touched + 1, token = ? WHERE resource = ? AND token <= ?
