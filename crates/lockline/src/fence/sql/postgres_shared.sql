INSERT INTO lockline_fences AS f (resource, token) VALUES ($1, least(0, $2))
ON CONFLICT (resource) DO UPDATE SET token = f.token WHERE f.token <= $2
