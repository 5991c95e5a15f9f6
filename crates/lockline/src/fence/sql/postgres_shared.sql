INSERT INTO lockline_fences AS f (resource, token) VALUES ($1, 0)
ON CONFLICT (resource) DO UPDATE SET token = f.token WHERE f.token <= $2
