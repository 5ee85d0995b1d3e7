DROP TABLE {schema}"{prefix}instances";
DROP TABLE {schema}"{prefix}received";
DROP TABLE {schema}"{prefix}published";
