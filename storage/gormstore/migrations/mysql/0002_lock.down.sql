DROP TABLE IF EXISTS {schema}`{prefix}lock`;
