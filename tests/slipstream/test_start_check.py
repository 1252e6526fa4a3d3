"""What a start would refuse, `config check` refuses with the same sentence; and every start refuses a fleet that cannot
be."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from contracts.desired_state import Model, Pool
from contracts.generation import Tier
from gateway.desired.store import DesiredStateStore
from tests.certificates import write_certificate
from tests.deployment import free_port
from tests.desired_states import seed
from tests.slipstream.deployment import WITHOUT_ENGINES, run, run_here

STARTS = (("up",), ("router",), ("worker",), ("engine", "--model", "anything"))
"""The gateway, which has an older fleet to go on with, has a test of its own."""
NO_DRIVER = (
    "pools.elsewhere.driver: no driver named 'triton'; drivers: embedded, llama_cpp, openai, sglang, tensorrt_llm, vllm"
)


def _pair(folder: Path, name: str) -> tuple[Path, Path]:
    files = folder / f"{name}.pem", folder / f"{name}.key"
    write_certificate(*files)
    return files


def _tls(certificate: Path | str, key: Path | str) -> str:
    return f'[gateway.tls]\ncertificate_file = "{certificate}"\nkey_file = "{key}"\n'


def _pool(option: str, url: str = "http://127.0.0.1:9") -> str:
    return WITHOUT_ENGINES.replace('driver = "openai"', f'driver = "openai"\n{option}').replace(
        "http://127.0.0.1:9", url
    )


def _launched(launch: str, options: str = "", *, drafts: bool = False) -> str:
    """The pool on one GPU an engine, by SGLang, started by somebody else."""
    pool = _pool(f"{options}\ntensor_parallel = 1\n").replace('"openai"', '"sglang"')
    pool = pool.replace('9" }', '9", speculation = true }') if drafts else pool
    return f"{pool}\n[pools.launch]\n{launch}\n"


def _empty(folder: Path) -> Path:
    file = folder / "empty.key"
    file.touch()
    return file


def _broken_tokenizer(folder: Path) -> Path:
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text("{")
    return folder / "tokenizer"


BROKEN: dict[str, tuple[Callable[[Path], str], str]] = {
    "half a pair": (lambda at: _tls(_pair(at, "a")[0], ""), "gateway.tls.key_file: missing; HTTPS needs both files"),
    "an absent certificate": (
        lambda at: _tls(at / "absent.pem", _pair(at, "a")[1]),
        "gateway.tls.certificate_file: {at}/absent.pem cannot be read: No such file or directory",
    ),
    "a pair that does not fit": (
        lambda at: _tls(_pair(at, "a")[0], _pair(at, "b")[1]),
        "gateway.tls: {at}/a.pem and {at}/b.key are not a certificate and its key in PEM",
    ),
    "an absent key file": (
        lambda at: _pool(f'api_key_file = "{at}/absent.key"'),
        "pools.elsewhere.api_key_file: no key can be read from {at}/absent.key: no such file or directory",
    ),
    "an empty key file": (
        lambda at: _pool(f'api_key_file = "{_empty(at)}"'),
        "pools.elsewhere.api_key_file: no key can be read from {at}/empty.key: it must hold one line",
    ),
    "a variable that is not set": (
        lambda at: _pool('api_key_env = "NOBODY_SET_THIS"'),
        "pools.elsewhere.api_key_env: the environment variable NOBODY_SET_THIS is not set",
    ),
    "the token on its way out": (
        lambda at: _pool("", "https://api.example.com"),
        "pools.elsewhere: the deployment's token would be sent to https://api.example.com, outside private networks",
    ),
    "a model folder that is none": (
        lambda at: f'[local]\nchat_model = "{at}/absent"\n',
        "local.chat_model: {at}/absent is not a folder",
    ),
    "two models of one name": (
        lambda at: f'[local]\nchat_model = "{_shipped()}"\ncode_model = "{_shipped()}"\n',
        "local.code_model: both tiers' folders are called 'slipstream-chat'",
    ),
    "a url without a scheme": (
        lambda at: _pool("", "127.0.0.1:8620"),
        "pools.elsewhere.replicas.elsewhere-1.url: '127.0.0.1:8620': must look like http://host:port; "
        "did you mean http://127.0.0.1:8620 ?",
    ),
    "the URL of a request": (
        lambda at: _pool("", "http://127.0.0.1:8620/llama/v1/chat/completions"),
        "pools.elsewhere.replicas.elsewhere-1.url: http://127.0.0.1:8620/llama/v1/chat/completions ends with "
        "/v1/chat/completions, which is added to it; write http://127.0.0.1:8620/llama\n",
    ),
    "the URL of the health check": (
        lambda at: _pool("", "http://127.0.0.1:8620/health"),
        "pools.elsewhere.replicas.elsewhere-1.url: http://127.0.0.1:8620/health ends with /health, which is added to "
        "it; write http://127.0.0.1:8620\n",
    ),
    "a port there cannot be": (
        lambda at: _pool("", "http://127.0.0.1:70000"),
        "pools.elsewhere.replicas.elsewhere-1.url: 'http://127.0.0.1:70000': Port out of range 0-65535\n",
    ),
    "one engine twice": (
        lambda at: WITHOUT_ENGINES.replace(
            "replicas = [", 'replicas = [{ id = "again", url = "http://127.0.0.1:9/v1/" }, '
        ),
        "pools.elsewhere.replicas.elsewhere-1.url: http://127.0.0.1:9 is also the URL of replica 'again'",
    ),
    "a tokenizer that is not there": (
        lambda at: WITHOUT_ENGINES.replace("context_tokens", 'tokenizer = "/models/nope"\ncontext_tokens'),
        "models.elsewhere.tokenizer: /models/nope: no such model folder; give a folder that holds tokenizer.json",
    ),
    "a tokenizer that is broken": (
        lambda at: WITHOUT_ENGINES.replace("context_tokens", f'tokenizer = "{_broken_tokenizer(at)}"\ncontext_tokens'),
        "models.elsewhere.tokenizer: {at}/tokenizer/tokenizer.json: not valid JSON",
    ),
    "a half-typed line that engines would not know how to place": (
        lambda at: WITHOUT_ENGINES.replace(
            "context_tokens", 'fim = { typed_line = "after_middle" }\ncontext_tokens'
        ).replace('driver = "openai"', 'driver = "sglang"'),
        "models.elsewhere.fim.typed_line: 'after_middle', but the model has no `tokenizer`, so its engines lay ",
    ),
    "a least confidence of a client that there is not": (
        lambda at: WITHOUT_ENGINES.replace(
            "context_tokens", "fim = { min_confidence_by_client = { notepad = 0.3 } }\ncontext_tokens"
        ),
        "models[0].fim.min_confidence_by_client: 'notepad' is not one of: slipstream-lsp, tabby-agent, zed, ",
    ),
    "a context of nothing": (
        lambda at: WITHOUT_ENGINES.replace("context_tokens = 1000", "context_tokens = 0"),
        "models[0].context_tokens: ",
    ),
    "a context that no engine has": (
        lambda at: WITHOUT_ENGINES.replace('9" }', '9", context_tokens = 999 }'),
        "models.elsewhere.context_tokens: 1,000, but no replica of pools.elsewhere takes more than 999",
    ),
    "a pool without engines": (
        lambda at: WITHOUT_ENGINES.partition("replicas")[0],
        "pools.elsewhere.replicas: empty, but models.elsewhere is served by this pool",
    ),
    "drafts that cannot be governed": (
        lambda at: _pool("speculation = { governed = true }"),
        "pools.elsewhere.speculation.governed: driver 'openai' offers no way to turn drafts on and off; drivers that",
    ),
    "thresholds the wrong way round": (
        lambda at: _pool("speculation = { off_above_running = 8, on_below_running = 8 }"),
        "pools.elsewhere.speculation.on_below_running: 8; must be less than off_above_running (8)",
    ),
    "adapters of a dialect that loads none": (
        lambda at: _pool("max_adapters = 4"),
        "pools.elsewhere.max_adapters: 4; the driver openai loads no adapters, so it must be 0 (for driver ",
    ),
    "an option of another driver": (
        lambda at: _pool("abort_by_id = true"),
        "pools.elsewhere.abort_by_id: true; the driver openai has no such option, so leave it out (for driver vllm)\n",
    ),
    "drafts of engines that draft nothing": (
        lambda at: (
            WITHOUT_ENGINES.partition("[[pools]]")[0]
            + '[[pools]]\nname = "elsewhere"\ndriver = "embedded"\nspeculation = { governed = true }\n'
            + f'engine = {{ model = "{_shipped()}" }}\n'
        ),
        "pools.elsewhere.speculation.governed: the engines of 'elsewhere' draft nothing (engine.speculation.method is ",
    ),
    "weights that do not fit their GPUs": (
        lambda at: _launched(
            'model = "/models/llama-70b"\nshape = "llama-70b"\ngpu = "h100"\ncontext_tokens = 131_072'
        ),
        "pools.elsewhere.launch: a context of 131,072 tokens × 163,840 bytes needs 21.5 GB of keys and values, but "
        "80.0 GB − 8.0 GB reserve − 70.6 GB weights leave 1.4 GB: at most 8,544 tokens; "
        "2 GPUs would hold it\n",
    ),
    "a launch without drafts that can be governed": (
        lambda at: _launched(
            'model = "/models/llama-8b"\nshape = "llama-8b"\ngpu = "h100"\n'
            'speculation = { algorithm = "eagle3", draft_model = "/models/head", adaptive = false }',
            "speculation = { governed = true }",
            drafts=True,
        ),
        "pools.elsewhere.speculation.governed: SGLang drafts by load only with a table of its own, and this launch "
        "gives it none; set launch.speculation.adaptive = true with a draft head, or governed = false\n",
    ),
    "a policy there is not": (
        lambda at: '[router]\npolicy = "prefixx"\n',
        "router.policy: no policy named 'prefixx'; known: ",
    ),
    "a network there cannot be": (
        lambda at: '[gateway.connections]\ntrusted_proxies = ["10.0.0.0/33"]\n',
        "gateway.connections.trusted_proxies[0]: '10.0.0.0/33' does not appear to be an IPv4 or IPv6 network; give",
    ),
    "another database": (
        lambda at: '[local]\ndatabase_url = "mysql://u:secret@db/slipstream"\n',
        "local.database_url: 'mysql://u:***@db/slipstream' is not a PostgreSQL URL; write postgresql://user@host",
    ),
    "gaps of a model that is not served": (
        lambda at: "[local.fim]\nwarm_up = false\n" + WITHOUT_ENGINES,
        "local.fim: it applies only to the default models of `up`, and the settings name models; use "
        "models[].fim and remove it",
    ),
    "drafts of engines that are not started": (
        lambda at: '[local]\ncode_speculation = "off"\n' + WITHOUT_ENGINES,
        "local.code_speculation: it applies only to the default models of `up`, and the settings name models; use "
        "pools[].engine.speculation and remove it",
    ),
    "no name of a database": (
        lambda at: '[local]\ndatabase_url = "postgresql://db/s"\nmigration_database_url = "postgresql://db"\n',
        "local.migration_database_url: 'postgresql://db' names no database; append /slipstream",
    ),
    "another store": (
        lambda at: '[local]\nvalkey_url = "http://x"\n',
        "local.valkey_url: 'http://x' is not an address; write unix:///path/to/valkey.sock or redis://host:6379/0",
    ),
    "no address of a router": (
        lambda at: '[gateway.router]\naddress = "nowhere"\n',
        "gateway.router.address: 'nowhere' is not a router address; use host:port",
    ),
    "trust that never holds": (
        lambda at: "[gateway.auth]\ntrust_s = 0.2\n",
        "gateway.auth.trust_s: 0.2 must be above 0.25, the interval between two proofs",
    ),
    "a driver there is not": (lambda at: WITHOUT_ENGINES.replace('"openai"', '"triton"'), NO_DRIVER),
}


def _shipped() -> Path:
    return Path(__file__).parents[2] / "models" / "slipstream-chat"


@pytest.mark.parametrize("fault", BROKEN)
def test_what_up_would_refuse_config_check_refuses_with_the_same_sentence(fault: str, tmp_path: Path) -> None:
    settings, sentence = BROKEN[fault]
    file = tmp_path / "s.toml"
    file.write_text(settings(tmp_path))
    before = sorted(tmp_path.iterdir())
    data = {"SLIPSTREAM_LOCAL__DATA": str(tmp_path / "data")}
    checked = run_here("config", "check", "--config", str(file), env=data)
    assert (checked.returncode, checked.stdout) == (2, "")
    assert checked.stderr.startswith(f"slipstream: {sentence.format(at=tmp_path)}")
    assert sorted(tmp_path.iterdir()) == before
    started = run_here("up", "--config", str(file), env=data)
    assert (started.returncode, started.stderr) == (2, checked.stderr)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("option", ["", "api_key_required = false", 'api_key_env = "THE_KEY"'])
def test_what_up_would_take_is_valid_and_nothing_is_made(option: str, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(_tls(*_pair(tmp_path, "a")) + _pool(option))
    before = sorted(tmp_path.iterdir())
    environment = {"SLIPSTREAM_LOCAL__DATA": str(tmp_path / "data"), "THE_KEY": "sk-1"}
    checked = run_here("config", "check", "--config", str(file), env=environment)
    assert (checked.returncode, checked.stdout) == (0, "settings are valid\n")
    assert checked.stderr.startswith("warning: models without `tokenizer`: elsewhere; the tokens of their prompts are")
    assert checked.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", STARTS, ids=lambda command: command[0])
def test_every_start_refuses_a_driver_there_is_not(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(WITHOUT_ENGINES.replace('"openai"', '"triton"'))
    refused = run_here(*command, "--config", str(file), "--data", str(tmp_path / "data"))
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (2, f"slipstream: {NO_DRIVER}")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('"openai"', '"triton"', NO_DRIVER),
        # only the catalogue refuses this one, when the database is open
        (
            "context_tokens",
            'tokenizer = "/models/nope"\ncontext_tokens',
            "models.elsewhere.tokenizer: /models/nope: no such model",
        ),
    ],
)
async def test_a_gateway_whose_own_settings_are_refused_serves_no_older_ones_and_writes_nothing_down(
    right: str, wrong: str, said: str, fresh_postgres_url: str, data_folder: Path, tmp_path: Path
) -> None:
    store = DesiredStateStore(fresh_postgres_url)
    await store.start()
    await seed(store, (Model("older", Tier.CHAT, "one", 1_000),), (Pool("one", "sglang"),))
    await store.stop()
    file = tmp_path / "s.toml"
    file.write_text(
        f'[local]\ndatabase_url = "{fresh_postgres_url}"\n[gateway]\nport = {free_port()}\n'
        + WITHOUT_ENGINES.replace(right, wrong)
    )
    command = ("gateway", "--config", str(file), "--data", str(data_folder))
    refused = await asyncio.to_thread(run, *command)
    assert refused.returncode == 2
    assert "models without `tokenizer`" not in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith(f"slipstream: {said}")
    connection = await asyncpg.connect(fresh_postgres_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM gateway.desired_states") == 1
    finally:
        await connection.close()


def test_a_process_without_up_makes_its_data_folder_for_itself_alone(data_folder: Path, tmp_path: Path) -> None:
    """Its port is taken: it comes as far as its secrets, and then says so."""
    file = tmp_path / "s.toml"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        file.write_text(WITHOUT_ENGINES + f"[router]\nport = {listener.getsockname()[1]}\n")
        refused = run("router", "--config", str(file), "--data", str(data_folder))
    assert "no such file or directory" not in refused.stderr
    assert "models without `tokenizer`" not in refused.stderr
    assert "cannot listen on" in refused.stderr
    assert refused.returncode == 2
    _assert_private(data_folder)


def _assert_private(data: Path) -> None:
    assert data.stat().st_mode & 0o777 == 0o700
    assert (data / "router.token").stat().st_mode & 0o777 == 0o600


async def test_a_gateway_does_not_start_on_a_database_that_is_not_there(
    empty_postgres_url: str, data_folder: Path, tmp_path: Path
) -> None:
    """One that cannot be reached it waits for: tests/gateway/test_late_database.py."""
    url = empty_postgres_url.replace("?", "_misspelt?")
    ended = await _gateway_on(url, WITHOUT_ENGINES, data_folder, tmp_path)
    said = ended.stderr.splitlines()[-1]
    assert (ended.returncode, said.endswith("correct the URL, or create the role or database")) == (2, True)
    assert "does not exist" in said


def test_a_gateway_does_not_share_the_port_of_another_deployments(data_folder: Path, tmp_path: Path) -> None:
    """Each would be sent customers of the other's, who would be strangers half of the time."""
    file = tmp_path / "s.toml"
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as a gateway's
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        file.write_text(f"{WITHOUT_ENGINES}[gateway]\nport = {port}\n")
        refused = run("gateway", "--config", str(file), "--data", str(data_folder))
    assert refused.returncode == 2
    assert refused.stderr.count("models without `tokenizer`: elsewhere") == 1
    _assert_private(data_folder)
    assert refused.stderr.splitlines()[-1].endswith(
        f"gateway.port: cannot listen on 127.0.0.1:{port}: another program does, which may be another deployment's "
        f"gateway (none of this one's runs, by {data_folder / 'journal'}); stop it, or choose another port"
    )


@pytest.mark.parametrize("fleet", ["", WITHOUT_ENGINES], ids=["no models", "models"])
async def test_a_gateway_on_a_database_without_tables_says_what_makes_them_and_nothing_else_of_it(
    fleet: str, empty_postgres_url: str, data_folder: Path, tmp_path: Path
) -> None:
    ended = await _gateway_on(empty_postgres_url, fleet, data_folder, tmp_path)
    said = ended.stderr.splitlines()[-1]
    assert (ended.returncode, said.endswith("the database has no tables yet; run `slipstream config migrate up`")) == (
        2,
        True,
    )
    assert "UndefinedTableError" not in ended.stderr


async def _gateway_on(url: str, fleet: str, data: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "s.toml"
    file.write_text(f'[local]\ndatabase_url = "{url}"\n[gateway]\nport = {free_port()}\n{fleet}')
    return await asyncio.to_thread(run, "gateway", "--config", str(file), "--data", str(data))
