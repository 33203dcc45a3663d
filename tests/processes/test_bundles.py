"""The onboarding example carried to another store while it waits for a person: one owner at any time, whatever is killed."""

import secrets
import shutil
import signal

import pytest
from tests.examples.onboarding import part
from tests.processes import bundle_program
from tests.workers import ask

import holdfast

RESULT = "ada is in staff (allowed by ana)"
BOOKS = {
    "accounts": ["ada"],
    "grants": [["ada", ["staff"]]],
    "mails": [["ada", "Welcome, ada! Your account is ada. You are in staff (allowed by ana)."]],
    "requests": {"accounts": 1, "grants": 1, "mails": 1},
}


class World:
    """A source in a file, an office, and keys; each journey of it begins as the source was when the person was asked."""

    def __init__(self, forks, folder):
        self.forks, self.folder = forks, folder
        self.keys = folder / "keys"
        ring = holdfast.Keys(self.keys)
        ring.trust(ring.new("ana").public, groups=["it-admins"], uses=["decisions"])
        (self.keys / "ana.key").rename(folder / "ana.key")
        ring.new("ops")
        self.hers = folder / "hers"
        self.hers.mkdir()
        (folder / "ana.key").rename(self.hers / "ana.key")
        holdfast.Keys(self.hers).trust(ring.own().public, uses=["bundles"])
        self.start = folder / "start"
        self.start.mkdir()
        self.question = self.begin(f"sqlite:{self.start / 'runs.db'}", self.start)

    def begin(self, url, folder):
        """Onboard somebody until a person is asked; returns the question."""
        with part("services").Office(folder / "office.db").open() as office:
            return self.run(bundle_program.begin, url=url, office=office.url)["question"]

    def run(self, function, **arguments):
        """A process that comes to its end."""
        process = self.forks.start(function, **{name: value for name, value in arguments.items() if value is not None})
        said = process.read()
        process.ends()
        return said

    def journey(self, name, destination, source=None):
        return Journey(self, self.folder / name, destination, source)


class Journey:
    def __init__(self, world, folder, destination, source):
        self.world, self.folder, self.destination = world, folder, destination or f"sqlite:{folder / 'there.db'}"
        self.source, self.file, self.question = f"sqlite:{folder / 'runs.db'}", folder / "ada.bundle", world.question
        if source is None:
            shutil.copytree(world.start, folder)
        else:  # a database is not copied: it begins anew
            folder.mkdir()
            self.source, self.question = source, world.begin(source, folder)
        self.to = ask(self.destination, lambda hf: hf.store_id())

    def export(self, fatal=None):
        """Returns what the process said, or None if it died."""
        keys = str(self.world.keys)
        return self._or_died(bundle_program.export, fatal, url=self.source, file=str(self.file), keys=keys, to=self.to)

    def bring(self, fatal=None):
        return self._or_died(
            bundle_program.bring, fatal, url=self.destination, file=str(self.file), keys=str(self.world.keys)
        )

    def _or_died(self, function, fatal, **arguments):
        if fatal is None:
            return self.world.run(function, **arguments)
        process = self.world.forks.start(function, **arguments, fatal=fatal)
        if process.wait() == 0:
            return process.read()
        assert process.code == -signal.SIGKILL, process.log.read_text()
        return None

    def approve(self):
        said = self.world.run(
            bundle_program.approve, file=str(self.file), keys=str(self.world.hers), question=self.question
        )
        assert said == {"status": "open"}  # how many must agree to another list, only the agent's code can tell

    def owners(self):
        """The sides that can go on with the run as things are: the source, a file that is there, the destination."""

        async def status(hf):
            return {info.id: info.status for info in await hf.runs()}.get("ada")

        async def taken(hf):
            try:
                await hf.import_run(self.file, keys=self.world.keys, dry_run=True)
            except (holdfast.BadBundle, holdfast.BadArguments):
                return False
            return True

        found = ["source"] if ask(self.source, status) not in (None, "moved") else []
        found += ["file"] if self.file.exists() and ask(self.destination, taken) else []
        return found + (["destination"] if ask(self.destination, status) not in (None, "moved") else [])

    def finish(self):
        """Carry the run to its end where it is now; every effect is in the books once."""
        with part("services").Office(self.folder / "office.db").open() as office:
            said = self.world.run(bundle_program.finish, url=self.destination, office=office.url)
            assert said == {"result": RESULT}
            assert office.books() == BOOKS


@pytest.fixture
def world(forks, tmp_path):
    return World(forks, tmp_path)


@pytest.fixture
def destinations(request):
    """Empty stores of one kind, a new one each time."""
    return (lambda: None) if request.param == "sqlite" else request.getfixturevalue("databases")


@pytest.fixture
def databases(postgres_server):
    """Empty stores in PostgreSQL, a new one each time."""
    mark = "&" if "?" in postgres_server else "?"
    return lambda: f"{postgres_server}{mark}schema=test_{secrets.token_hex(6)}"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("destinations", ["postgres"], indirect=True)
def test_approved_in_the_file_and_finished_in_another_database_by_another_process(world, destinations):
    journey = world.journey("whole", destinations())
    assert journey.owners() == ["source"]
    journey.export()
    assert journey.owners() == ["file"]
    journey.approve()
    assert journey.bring()["refused"] is None
    assert journey.owners() == ["destination"]
    journey.finish()


@pytest.mark.timeout(300)
@pytest.mark.by_day("sqlite")
@pytest.mark.parametrize("destinations", ["sqlite", "postgres"], indirect=True)
def test_killed_at_every_boundary_of_an_export_it_has_one_owner(world, destinations, request):
    """Before the source has given it up the source goes on; afterwards only the file can, which the same command writes again."""
    died = killed_exports(lambda name: world.journey(name, destinations()))
    request.node.user_properties.append(("crash_points", died))


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("destinations", ["sqlite", "postgres"], indirect=True)
def test_killed_at_every_boundary_of_an_export_from_postgresql_it_has_one_owner(
    world, destinations, databases, request
):
    died = killed_exports(lambda name: world.journey(name, destinations(), databases()))
    request.node.user_properties.append(("crash_points", died))


def killed_exports(begun):
    """Kill an export at each of its boundaries, and go on from there to the end; returns how many there are."""
    boundaries = begun("undisturbed").export()["boundaries"]
    assert boundaries >= 8  # two commits, two flushes of files and one of a folder, a renaming: before and after each
    for fatal in range(1, boundaries + 1):
        journey = begun(f"export{fatal}")
        assert journey.export(fatal) is None
        assert len(journey.owners()) <= 1
        journey.export()
        assert journey.owners() == ["file"]
        journey.approve()
        assert journey.bring()["refused"] is None
        assert journey.owners() == ["destination"]
        journey.finish()
    return boundaries


@pytest.mark.timeout(300)
@pytest.mark.by_day("postgres")
@pytest.mark.parametrize("destinations", ["sqlite", "postgres"], indirect=True)
def test_killed_at_every_boundary_of_an_import_it_has_one_owner(world, destinations, request):
    journey = world.journey("undisturbed", destinations())
    journey.export()
    journey.approve()
    boundaries = journey.bring()["boundaries"]
    assert boundaries >= 2
    for fatal in range(1, boundaries + 1):
        journey = world.journey(f"import{fatal}", destinations())
        journey.export()
        journey.approve()
        assert journey.bring(fatal) is None
        (owner,) = journey.owners()
        refused = journey.bring()["refused"]
        assert (refused is None) is (owner == "file"), refused
        assert owner == "file" or "imported here before" in refused
        assert journey.owners() == ["destination"]
        journey.finish()
    request.node.user_properties.append(("crash_points", boundaries))
