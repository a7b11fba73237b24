PRAGMA application_id = 1668178279;
BEGIN TRANSACTION;
CREATE TABLE claim (
	id VARCHAR(36) NOT NULL, 
	purpose VARCHAR(16) NOT NULL, 
	instance VARCHAR(36) NOT NULL, 
	node VARCHAR(36) NOT NULL, 
	half VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	memory_mb BIGINT NOT NULL, 
	vcpus BIGINT NOT NULL, 
	disk_mb BIGINT NOT NULL, 
	cells TEXT NOT NULL, 
	flavor_id TEXT, 
	migration VARCHAR(36), 
	origin VARCHAR(36), 
	digest TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	version BIGINT NOT NULL, 
	mdevs TEXT DEFAULT '[]' NOT NULL, 
	CONSTRAINT pk_claim PRIMARY KEY (id), 
	CONSTRAINT ck_claim_purpose CHECK (purpose IN ('devices', 'instance', 'move')), 
	CONSTRAINT ck_claim_half CHECK (half IN ('new', 'old', 'only')), 
	CONSTRAINT ck_claim_state CHECK (state IN ('consumed', 'held', 'released')), 
	CONSTRAINT ck_claim_memory_mb CHECK (memory_mb >= 0), 
	CONSTRAINT ck_claim_vcpus CHECK (vcpus >= 0), 
	CONSTRAINT ck_claim_disk_mb CHECK (disk_mb >= 0), 
	CONSTRAINT fk_claim_instance FOREIGN KEY(instance) REFERENCES instance (uuid), 
	CONSTRAINT fk_claim_node FOREIGN KEY(node) REFERENCES compute_node (uuid), 
	CONSTRAINT fk_claim_migration FOREIGN KEY(migration) REFERENCES migration (uuid), 
	CONSTRAINT fk_claim_origin FOREIGN KEY(origin) REFERENCES migration (uuid)
);
CREATE TABLE compute_node (
	uuid VARCHAR(36) NOT NULL, 
	host TEXT NOT NULL, 
	name TEXT NOT NULL, 
	host_ip TEXT, 
	vcpus BIGINT, 
	memory_mb BIGINT, 
	local_gb BIGINT, 
	hypervisor_type TEXT NOT NULL, 
	hypervisor_version BIGINT NOT NULL, 
	cpu_info TEXT NOT NULL, 
	cpu_allocation_ratio DOUBLE NOT NULL, 
	ram_allocation_ratio DOUBLE NOT NULL, 
	disk_allocation_ratio DOUBLE NOT NULL, 
	failed_builds INTEGER NOT NULL, 
	dirty BOOLEAN NOT NULL, 
	deleted BOOLEAN NOT NULL, 
	created_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_compute_node PRIMARY KEY (uuid), 
	CONSTRAINT ck_compute_node_vcpus CHECK (vcpus >= 0), 
	CONSTRAINT ck_compute_node_memory_mb CHECK (memory_mb >= 0), 
	CONSTRAINT ck_compute_node_local_gb CHECK (local_gb >= 0), 
	CONSTRAINT ck_compute_node_failed_builds CHECK (failed_builds >= 0)
);
INSERT INTO "compute_node" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','compute1','compute1',NULL,8,65536,500,'fake',1000,'x86_64 Intel Nehalem',4.0,1.0,1.0,0,0,0,1.79578196359710979459e+09,1.79578196359710979459e+09,1);
CREATE TABLE compute_node_agent_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT compute_node_agent_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "compute_node_agent_schema" VALUES('0014');
CREATE TABLE device (
	node VARCHAR(36) NOT NULL, 
	address VARCHAR(32) NOT NULL, 
	vendor_id VARCHAR(16) NOT NULL, 
	product_id VARCHAR(16) NOT NULL, 
	type VARCHAR(16) NOT NULL, 
	parent VARCHAR(32), 
	numa_node INTEGER, 
	tags TEXT NOT NULL, 
	serves VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	holder VARCHAR(36), 
	request TEXT, 
	present BOOLEAN NOT NULL, 
	version BIGINT NOT NULL, 
	one_time_use BOOLEAN DEFAULT 0 NOT NULL, 
	used BOOLEAN DEFAULT 0 NOT NULL, 
	reserved BIGINT DEFAULT 0 NOT NULL, 
	reserved_at BIGINT DEFAULT 0 NOT NULL, 
	reservation_due BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_device PRIMARY KEY (node, address), 
	CONSTRAINT ck_device_type CHECK (type IN ('type-PCI', 'type-PF', 'type-VF', 'vdpa')), 
	CONSTRAINT ck_device_serves CHECK (serves IN ('guests', 'host', 'nobody')), 
	CONSTRAINT ck_device_state CHECK (state IN ('allocated', 'available', 'claimed')), 
	CONSTRAINT ck_device_holder CHECK ((holder IS NULL) = (state = 'available')), 
	CONSTRAINT fk_device_node FOREIGN KEY(node) REFERENCES compute_node (uuid), 
	CONSTRAINT fk_device_holder FOREIGN KEY(holder) REFERENCES claim (id)
);
INSERT INTO "device" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','0000:3b:00.0','10de','1db6','type-PCI',NULL,0,'{}','guests','available',NULL,NULL,1,1,0,0,0,0,0);
CREATE TABLE endpoint (
	endpoint TEXT NOT NULL, 
	max_version VARCHAR(16) NOT NULL, 
	can_reshape BOOLEAN NOT NULL, 
	traits TEXT NOT NULL, 
	classes TEXT NOT NULL, 
	unknown_traits TEXT NOT NULL, 
	CONSTRAINT pk_endpoint PRIMARY KEY (endpoint)
);
INSERT INTO "endpoint" VALUES('http://placement.example.org/placement','1.39',1,'["COMPUTE_MANAGED_PCI_DEVICE", "COMPUTE_NODE", "CUSTOM_COMPUTE_NODE_AGENT_COMPUTE1", "HW_CPU_X86_AMD_SEV", "HW_NUMA_ROOT", "OWNER_NOVA"]','["CUSTOM_MINE", "CUSTOM_PCI_10DE_1DB6"]','{}');
CREATE TABLE identity (
	host TEXT NOT NULL, 
	uuid VARCHAR(36) NOT NULL, 
	CONSTRAINT pk_identity PRIMARY KEY (host)
);
INSERT INTO "identity" VALUES('compute1','eea6e617-f2ad-4956-84a4-7a9b8dc7037e');
CREATE TABLE instance (
	uuid VARCHAR(36) NOT NULL, 
	project_id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	flavor TEXT NOT NULL, 
	os_type TEXT, 
	host TEXT, 
	node VARCHAR(36), 
	launched_on TEXT, 
	vm_state VARCHAR(32) NOT NULL, 
	task_state VARCHAR(32), 
	old_flavor TEXT, 
	new_flavor TEXT, 
	image_properties TEXT NOT NULL, 
	volume_backed BOOLEAN NOT NULL, 
	hidden BOOLEAN NOT NULL, 
	deleted BOOLEAN NOT NULL, 
	created_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_instance PRIMARY KEY (uuid), 
	CONSTRAINT ck_instance_vm_state CHECK (vm_state IN ('active', 'building', 'deleted', 'error', 'paused', 'rescued', 'resized', 'shelved', 'shelved_offloaded', 'soft-delete', 'stopped', 'suspended')), 
	CONSTRAINT ck_instance_task_state CHECK (task_state IN ('block_device_mapping', 'deleting', 'image_backup', 'image_pending_upload', 'image_snapshot', 'image_snapshot_pending', 'image_uploading', 'migrating', 'networking', 'pausing', 'powering-off', 'powering-on', 'reboot_pending', 'reboot_pending_hard', 'reboot_started', 'reboot_started_hard', 'rebooting', 'rebooting_hard', 'rebuild_block_device_mapping', 'rebuild_spawning', 'rebuilding', 'rescuing', 'resize_confirming', 'resize_finish', 'resize_migrated', 'resize_migrating', 'resize_prep', 'resize_reverting', 'restoring', 'resuming', 'scheduling', 'shelving', 'shelving_image_pending_upload', 'shelving_image_uploading', 'shelving_offloading', 'soft-deleting', 'spawning', 'suspending', 'unpausing', 'unrescuing', 'unshelving', 'updating_password'))
);
CREATE TABLE journal (
	root VARCHAR(36) NOT NULL, 
	adopted BOOLEAN NOT NULL, 
	version BIGINT DEFAULT '1' NOT NULL, 
	tombstones TEXT, 
	CONSTRAINT pk_journal PRIMARY KEY (root)
);
INSERT INTO "journal" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001',1,1,NULL);
CREATE TABLE journal_provider (
	root VARCHAR(36) NOT NULL, 
	provider VARCHAR(36) NOT NULL, 
	classes TEXT, 
	traits TEXT, 
	aggregates TEXT, 
	held TEXT, 
	configured_classes TEXT, 
	configured_traits TEXT, 
	name TEXT, 
	CONSTRAINT pk_journal_provider PRIMARY KEY (root, provider), 
	CONSTRAINT fk_journal_provider_journal FOREIGN KEY(root) REFERENCES journal (root) ON DELETE CASCADE
);
INSERT INTO "journal_provider" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','9a256fdf-e9d8-50e2-a724-ee7732c2701c','["CUSTOM_PCI_10DE_1DB6"]','["COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"]','[]',NULL,NULL,NULL,NULL);
INSERT INTO "journal_provider" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','090723a9-96cf-5e32-83e5-a07af80e62d3','["CUSTOM_MINE"]','[]','[]',NULL,NULL,NULL,NULL);
INSERT INTO "journal_provider" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','aaaaaaaa-0000-4000-8000-000000000001','["VGPU"]','[]','[]',NULL,NULL,NULL,'compute1_pci_0000_5e_00_0');
INSERT INTO "journal_provider" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','187b7e79-34da-5371-ba78-d10835702d34','["MEM_ENCRYPTION_CONTEXT"]','["HW_CPU_X86_AMD_SEV"]','[]',NULL,NULL,NULL,NULL);
INSERT INTO "journal_provider" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','f20826a1-8d52-5d4d-9d91-c15ea752dbcf','["PCPU"]','["HW_NUMA_ROOT"]','[]',NULL,NULL,NULL,NULL);
INSERT INTO "journal_provider" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','63573a92-c3df-5275-8f16-602d1e5b878a','["PCPU"]','["HW_NUMA_ROOT"]','[]',NULL,NULL,NULL,NULL);
INSERT INTO "journal_provider" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','5f9c2a34-7d1e-4a8b-9c46-00000000d001','["DISK_GB", "MEMORY_MB", "VCPU"]','["COMPUTE_NODE", "CUSTOM_COMPUTE_NODE_AGENT_COMPUTE1", "OWNER_NOVA"]','[]',NULL,NULL,NULL,NULL);
CREATE TABLE lease (
	node VARCHAR(36) NOT NULL, 
	host TEXT NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_lease PRIMARY KEY (node)
);
INSERT INTO "lease" VALUES('5f9c2a34-7d1e-4a8b-9c46-00000000d001','compute1',1.79578196428584623339e+09,4);
CREATE TABLE migration (
	uuid VARCHAR(36) NOT NULL, 
	instance VARCHAR(36) NOT NULL, 
	type VARCHAR(32) NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	source_compute TEXT, 
	source_node VARCHAR(36), 
	dest_compute TEXT, 
	dest_node VARCHAR(36), 
	dest_host TEXT, 
	old_flavor_id TEXT, 
	new_flavor_id TEXT, 
	hidden BOOLEAN NOT NULL, 
	cross_cell_move BOOLEAN NOT NULL, 
	created_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	version BIGINT NOT NULL, 
	cleared BOOLEAN DEFAULT 0 NOT NULL, 
	clearing BIGINT, 
	CONSTRAINT pk_migration PRIMARY KEY (uuid), 
	CONSTRAINT ck_migration_type CHECK (type IN ('evacuation', 'live-migration', 'migration', 'resize')), 
	CONSTRAINT ck_migration_status CHECK (status IN ('accepted', 'cancelled', 'completed', 'confirmed', 'confirming', 'done', 'error', 'failed', 'finished', 'migrating', 'post-migrating', 'pre-migrating', 'preparing', 'queued', 'reverted', 'reverting', 'running')), 
	CONSTRAINT fk_migration_instance FOREIGN KEY(instance) REFERENCES instance (uuid)
);
CREATE TABLE mirror (
	id INTEGER NOT NULL, 
	endpoint TEXT NOT NULL, 
	root VARCHAR(36) NOT NULL, 
	sharing_read_at DOUBLE, 
	sharing_aggregates TEXT NOT NULL, 
	CONSTRAINT pk_mirror PRIMARY KEY (id), 
	CONSTRAINT uq_mirror_endpoint UNIQUE (endpoint, root)
);
INSERT INTO "mirror" VALUES(1,'http://placement.example.org/placement','5f9c2a34-7d1e-4a8b-9c46-00000000d001',NULL,'[]');
CREATE TABLE mirror_consumers (
	mirror INTEGER NOT NULL, 
	provider VARCHAR(36) NOT NULL, 
	consumers TEXT NOT NULL, 
	asked_at DOUBLE, 
	CONSTRAINT pk_mirror_consumers PRIMARY KEY (mirror, provider), 
	CONSTRAINT fk_mirror_consumers_mirror FOREIGN KEY(mirror) REFERENCES mirror (id) ON DELETE CASCADE
);
INSERT INTO "mirror_consumers" VALUES(1,'f20826a1-8d52-5d4d-9d91-c15ea752dbcf','{}',NULL);
INSERT INTO "mirror_consumers" VALUES(1,'63573a92-c3df-5275-8f16-602d1e5b878a','{}',NULL);
INSERT INTO "mirror_consumers" VALUES(1,'187b7e79-34da-5371-ba78-d10835702d34','{}',NULL);
INSERT INTO "mirror_consumers" VALUES(1,'090723a9-96cf-5e32-83e5-a07af80e62d3','{}',NULL);
INSERT INTO "mirror_consumers" VALUES(1,'9a256fdf-e9d8-50e2-a724-ee7732c2701c','{}',NULL);
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
INSERT INTO "mirror_provider" VALUES(1,'5f9c2a34-7d1e-4a8b-9c46-00000000d001',0,'compute1',NULL,4,'{"DISK_GB": {"total": 500, "reserved": 0, "min_unit": 1, "max_unit": 500, "step_size": 1, "allocation_ratio": 1.0}, "MEMORY_MB": {"total": 65536, "reserved": 512, "min_unit": 1, "max_unit": 65536, "step_size": 1, "allocation_ratio": 1.0}, "VCPU": {"total": 2, "reserved": 0, "min_unit": 1, "max_unit": 2, "step_size": 1, "allocation_ratio": 4.0}}','["COMPUTE_NODE", "CUSTOM_COMPUTE_NODE_AGENT_COMPUTE1", "OWNER_NOVA"]','[]',1.79578196359943175319e+09);
INSERT INTO "mirror_provider" VALUES(1,'aaaaaaaa-0000-4000-8000-000000000001',1,'compute1_pci_0000_5e_00_0','5f9c2a34-7d1e-4a8b-9c46-00000000d001',3,'{"VGPU": {"total": 4, "reserved": 0, "min_unit": 1, "max_unit": 4, "step_size": 1, "allocation_ratio": 1.0}}','[]','[]',1.79578196359943175319e+09);
INSERT INTO "mirror_provider" VALUES(1,'63573a92-c3df-5275-8f16-602d1e5b878a',2,'compute1_NUMA0','5f9c2a34-7d1e-4a8b-9c46-00000000d001',3,'{"PCPU": {"total": 3, "reserved": 0, "min_unit": 1, "max_unit": 3, "step_size": 1, "allocation_ratio": 1.0}}','["HW_NUMA_ROOT"]','[]',1.79578196366210889817e+09);
INSERT INTO "mirror_provider" VALUES(1,'9a256fdf-e9d8-50e2-a724-ee7732c2701c',3,'compute1_0000:3B:00.0','63573a92-c3df-5275-8f16-602d1e5b878a',3,'{"CUSTOM_PCI_10DE_1DB6": {"total": 1, "reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1, "allocation_ratio": 1.0}}','["COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"]','[]',1.79578196366210889817e+09);
INSERT INTO "mirror_provider" VALUES(1,'f20826a1-8d52-5d4d-9d91-c15ea752dbcf',4,'compute1_NUMA1','5f9c2a34-7d1e-4a8b-9c46-00000000d001',3,'{"PCPU": {"total": 3, "reserved": 0, "min_unit": 1, "max_unit": 3, "step_size": 1, "allocation_ratio": 1.0}}','["HW_NUMA_ROOT"]','[]',1.79578196366210889817e+09);
INSERT INTO "mirror_provider" VALUES(1,'090723a9-96cf-5e32-83e5-a07af80e62d3',5,'compute1_mine','5f9c2a34-7d1e-4a8b-9c46-00000000d001',2,'{"CUSTOM_MINE": {"total": 2, "reserved": 0, "min_unit": 1, "max_unit": 2, "step_size": 1, "allocation_ratio": 1.0}}','[]','[]',1.79578196366210889817e+09);
INSERT INTO "mirror_provider" VALUES(1,'187b7e79-34da-5371-ba78-d10835702d34',6,'compute1_amd_sev','5f9c2a34-7d1e-4a8b-9c46-00000000d001',3,'{"MEM_ENCRYPTION_CONTEXT": {"total": 3, "reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1, "allocation_ratio": 1.0}}','["HW_CPU_X86_AMD_SEV"]','[]',1.79578196366210889817e+09);
CREATE TABLE mirror_unknown (
	mirror INTEGER NOT NULL, 
	consumer VARCHAR(36) NOT NULL, 
	since DOUBLE NOT NULL, 
	CONSTRAINT pk_mirror_unknown PRIMARY KEY (mirror, consumer), 
	CONSTRAINT fk_mirror_unknown_mirror FOREIGN KEY(mirror) REFERENCES mirror (id) ON DELETE CASCADE
);
CREATE TABLE unit (
	node VARCHAR(36) NOT NULL, 
	provider VARCHAR(36) NOT NULL, 
	resource_class VARCHAR(255) NOT NULL, 
	identifier TEXT NOT NULL, 
	metadata TEXT NOT NULL, 
	holder VARCHAR(36), 
	present BOOLEAN NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_unit PRIMARY KEY (node, provider, resource_class, identifier), 
	CONSTRAINT fk_unit_node FOREIGN KEY(node) REFERENCES compute_node (uuid), 
	CONSTRAINT fk_unit_holder FOREIGN KEY(holder) REFERENCES claim (id)
);
CREATE UNIQUE INDEX uq_compute_node_host_name ON compute_node (host, name) WHERE NOT deleted;
CREATE INDEX ix_instance_node ON instance (node) WHERE NOT deleted;
CREATE INDEX ix_migration_instance ON migration (instance);
CREATE INDEX ix_migration_dest_node ON migration (dest_node) WHERE status NOT IN ('cancelled', 'completed', 'confirmed', 'done', 'failed', 'reverted');
CREATE INDEX ix_migration_source_node ON migration (source_node) WHERE status NOT IN ('cancelled', 'completed', 'confirmed', 'done', 'failed', 'reverted');
CREATE INDEX ix_migration_not_cleared ON migration (source_node) WHERE type = 'evacuation' AND status = 'done' AND NOT cleared;
CREATE INDEX ix_claim_migration ON claim (migration);
CREATE INDEX ix_claim_of_instance ON claim (instance);
CREATE INDEX ix_claim_node ON claim (node) WHERE state <> 'released';
CREATE INDEX ix_claim_instance ON claim (instance) WHERE state <> 'released';
CREATE INDEX ix_claim_origin ON claim (origin);
CREATE INDEX ix_device_holder ON device (holder);
CREATE INDEX ix_unit_holder ON unit (holder);
COMMIT;