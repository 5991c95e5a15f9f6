INSERT INTO lockline_fences (resource, token, touched) VALUES (?, 0, 0) ON DUPLICATE KEY UPDATE touched = touched + 1
