-- A log of format 1, as the code that brought the format wrote it. Frozen: never edit.
BEGIN TRANSACTION;
CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        version INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
INSERT INTO "events" VALUES(1,1764430000001,1,'tick','{"Tick":{}}');
INSERT INTO "events" VALUES(2,1764430000002,1,'submitted','{"Submitted":{"job":1}}');
CREATE TABLE images (
        seq INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        digest TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        state BLOB NOT NULL
    ) STRICT;
INSERT INTO "images" VALUES(2,1,'b08f2e970a8546865de0df04690ce47b6311c0ccf7ca3583ee416d97371f2e15',10,X'28B52FFD200A510000AC020770656E64696E67');
CREATE TABLE meta (format INTEGER NOT NULL, fence INTEGER NOT NULL, owner TEXT NOT NULL) STRICT;
INSERT INTO "meta" VALUES(1,4,'server-a');
COMMIT;
