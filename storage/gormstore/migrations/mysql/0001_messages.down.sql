DROP TABLE IF EXISTS {schema}`{prefix}instances`;
DROP TABLE IF EXISTS {schema}`{prefix}received`;
DROP TABLE IF EXISTS {schema}`{prefix}published`;
