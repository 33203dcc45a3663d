"""Migrations that exist are never edited: stores remember the text they were made with, and open with no other."""

import hashlib
from pathlib import Path

import holdfast

# A new migration gets a new line; no line is ever changed.
TEXTS = {
    "every store, 0001_initial.sql": "07c95331ce849f1c08656d7e46db61e05f29d8eaac01526d327a6708543837c2",
    "every store, 0002_audit.sql": "0015404fb4897737c7c3eb102d1321570a86c99e0b169f35eb7dba3022636ce9",
    "every store, 0003_identity.sql": "49fda0d95076b18d9857d753d3322eb05076136c74fbeb06b852786791566260",
    "every store, 0004_turns.sql": "1cc3644fb1875bca2153e2f42ccd48101b80e2e2bd5ceaa0f42af9456aa93814",
    "every store, 0005_copies.sql": "dddc438b6729d930c4a940e41d860052edd6b9802f1ea22263ac749805d6450d",
    "every store, 0006_refused.sql": "5dfd3b294649609477694d01f85e47ac6002cce0fc0b0efb01e7ae08940251db",
    "every store, 0007_company.sql": "e8e5e4dfdf223461dd63481f15f286582ab98008722f2bfc9f889edc5af8a365",
    "every store, 0008_admission.sql": "93864a2397f8bff6f0fc980523d55ba6adf0a9799e81739d9eab4c04839d32f4",
    "every store, 0009_parts.sql": "fa241858a24ff57bee4f52f7b6123af8f3f9e403ab2debe9abaad22a96ee6477",
    "every store, 0010_bundles.sql": "c3320d94dba502f80b2833dfa48664f263b1b45e1aff76c101c80e34af221700",
    "every store, 0011_lineage.sql": "28ee170777b20ad8fe3c26285c12ecd9de9c481a4047faa0cfa984bbba290171",
    "every store, 0012_inline.sql": "908d5eccf3f7ef0755bb5c1fc920712a79854400e740c696d3ccb7c78ef38acb",
    "every store, 0013_archived.sql": "4b1f8e5ded14b71b6336c4f0d0e197c7747a24ada903a4e8567b76c1bee69689",
    "every store, 0014_schedules.sql": "fc148736332a815417b9fd2de2a1a0c01b41b828168c5bd5ba5c9ca0c95cb242",
    "every store, 0015_triggers.sql": "cc16c93c70ca68d442b61401dff394814a9ee589ca586da82783b707802945a8",
    "every store, 0016_announcements.sql": "ae46a68d6bc1b2c2687837976bd429f2ecb0d411d65a50436fb3853801b7dd23",
    "every store, 0017_notifications.sql": "2f42811a7c5ca42f783b81d4750580fa506e4f5283727f3ab227d75fa9729769",
    "every store, 0018_files.sql": "89148161a5caaf821624e76c38c93b1e6af6297d1d01a084cb8afafcde13e4e4",
    "every store, 0019_lives.sql": "e7223cc13991a9cd1dd735a8ebbd7dfae9347e04597ca691273dcf880a48fc0c",
    "every store, 0020_sessions.sql": "261092fceba7c4b702bc2a6fa9feab0f5179ee57d9cdd5f6974391dd0921ddc8",
    "every store, 0021_remnants.sql": "e88f735e31b6c5957eea7354af561366b46eabeb5d5994de9e7fb54e2237ceee",
    "postgres, 0001.sql": "2be7312dd933c2276a87148302546de52117d7890cfb340f9961d63398a78694",
    "postgres, 0012.sql": "8746b9b96799749852dee300aa6e1c9c5ed69f20aa4646905ca732f8d40c4539",
}


def found():
    """The digest of each migration, by store and name."""
    root = Path(holdfast.__file__).parent
    files = {path: path.read_text("utf-8").replace("\r\n", "\n") for path in root.rglob("migrations/*.sql")}
    return {
        f"{'postgres' if 'postgres' in path.parts else 'every store'}, {path.name}": hashlib.sha256(
            text.encode()
        ).hexdigest()
        for path, text in files.items()
    }


def test_no_migration_that_exists_was_edited_or_taken_away():
    now = found()
    changed = [name for name, digest in TEXTS.items() if now.get(name) != digest]
    assert not changed, (
        f"{changed}: stores were made with them as they were; undo that, and write a new migration instead"
    )


def test_every_migration_is_in_the_table():
    new = {name: digest for name, digest in found().items() if name not in TEXTS}
    assert not new, "add to TEXTS:\n" + "\n".join(f'    "{name}": "{digest}",' for name, digest in sorted(new.items()))
