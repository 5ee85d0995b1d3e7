DROP TABLE {schema}"{prefix}lock";
