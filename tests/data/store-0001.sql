-- The store of a node of the driver fake.pci, as the first release wrote it, as SQL.
PRAGMA application_id = 1668178279;
BEGIN TRANSACTION;
CREATE TABLE compute_node_agent_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT compute_node_agent_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "compute_node_agent_schema" VALUES('0001');
CREATE TABLE endpoint (
	endpoint TEXT NOT NULL, 
	max_version VARCHAR(16) NOT NULL, 
	can_reshape BOOLEAN NOT NULL, 
	traits TEXT NOT NULL, 
	classes TEXT NOT NULL, 
	unknown_traits TEXT NOT NULL, 
	CONSTRAINT pk_endpoint PRIMARY KEY (endpoint)
);
INSERT INTO "endpoint" VALUES('http://placement.embedded','1.39',1,'["COMPUTE_ACCELERATORS", "COMPUTE_DEVICE_TAGGING", "COMPUTE_NET_ATTACH_INTERFACE", "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", "COMPUTE_NODE", "COMPUTE_TRUSTED_CERTS", "COMPUTE_VOLUME_ATTACH_WITH_TAG", "COMPUTE_VOLUME_EXTEND", "COMPUTE_VOLUME_MULTI_ATTACH", "CUSTOM_COMPUTE_NODE_AGENT_NODE_A", "OWNER_NOVA"]','[]','{}');
CREATE TABLE identity (
	host TEXT NOT NULL, 
	uuid VARCHAR(36) NOT NULL, 
	CONSTRAINT pk_identity PRIMARY KEY (host)
);
INSERT INTO "identity" VALUES('node-a','21e1a349-c298-4db6-b677-5b006b17932d');
CREATE TABLE journal (
	root VARCHAR(36) NOT NULL, 
	adopted BOOLEAN NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (root)
);
INSERT INTO "journal" VALUES('21e1a349-c298-4db6-b677-5b006b17932d',1);
CREATE TABLE journal_provider (
	root VARCHAR(36) NOT NULL, 
	provider VARCHAR(36) NOT NULL, 
	classes TEXT, 
	traits TEXT, 
	aggregates TEXT, 
	held TEXT, 
	CONSTRAINT pk_journal_provider PRIMARY KEY (root, provider), 
	CONSTRAINT fk_journal_provider_journal FOREIGN KEY(root) REFERENCES journal (root) ON DELETE CASCADE
);
INSERT INTO "journal_provider" VALUES('21e1a349-c298-4db6-b677-5b006b17932d','21e1a349-c298-4db6-b677-5b006b17932d','["DISK_GB", "MEMORY_MB", "VCPU"]','["COMPUTE_ACCELERATORS", "COMPUTE_DEVICE_TAGGING", "COMPUTE_NET_ATTACH_INTERFACE", "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", "COMPUTE_NODE", "COMPUTE_TRUSTED_CERTS", "COMPUTE_VOLUME_ATTACH_WITH_TAG", "COMPUTE_VOLUME_EXTEND", "COMPUTE_VOLUME_MULTI_ATTACH", "CUSTOM_COMPUTE_NODE_AGENT_NODE_A", "OWNER_NOVA"]','[]',NULL);
CREATE TABLE mirror (
	id INTEGER NOT NULL, 
	endpoint TEXT NOT NULL, 
	root VARCHAR(36) NOT NULL, 
	sharing_read_at DOUBLE, 
	sharing_aggregates TEXT NOT NULL, 
	CONSTRAINT pk_mirror PRIMARY KEY (id), 
	CONSTRAINT uq_mirror_endpoint UNIQUE (endpoint, root)
);
INSERT INTO "mirror" VALUES(1,'http://placement.embedded','21e1a349-c298-4db6-b677-5b006b17932d',NULL,'[]');
CREATE TABLE mirror_provider (
	mirror INTEGER NOT NULL, 
	uuid VARCHAR(36) NOT NULL, 
	ordinal INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	parent VARCHAR(36), 
	generation BIGINT, 
	inventory TEXT NOT NULL, 
	traits TEXT NOT NULL, 
	aggregates TEXT NOT NULL, 
	read_at DOUBLE, 
	CONSTRAINT pk_mirror_provider PRIMARY KEY (mirror, uuid), 
	CONSTRAINT fk_mirror_provider_mirror FOREIGN KEY(mirror) REFERENCES mirror (id) ON DELETE CASCADE
);
INSERT INTO "mirror_provider" VALUES(1,'21e1a349-c298-4db6-b677-5b006b17932d',0,'node-a',NULL,2,'{"DISK_GB": {"total": 1028, "reserved": 0, "min_unit": 1, "max_unit": 1028, "step_size": 1, "allocation_ratio": 1.0}, "MEMORY_MB": {"total": 8192, "reserved": 512, "min_unit": 1, "max_unit": 8192, "step_size": 1, "allocation_ratio": 1.0}, "VCPU": {"total": 2, "reserved": 0, "min_unit": 1, "max_unit": 2, "step_size": 1, "allocation_ratio": 4.0}}','["COMPUTE_ACCELERATORS", "COMPUTE_DEVICE_TAGGING", "COMPUTE_NET_ATTACH_INTERFACE", "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", "COMPUTE_NODE", "COMPUTE_TRUSTED_CERTS", "COMPUTE_VOLUME_ATTACH_WITH_TAG", "COMPUTE_VOLUME_EXTEND", "COMPUTE_VOLUME_MULTI_ATTACH", "CUSTOM_COMPUTE_NODE_AGENT_NODE_A", "OWNER_NOVA"]','[]',1.79544899710086250299e+09);
COMMIT;
