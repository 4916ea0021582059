"""One file from a server gives a site all that it needs, and nothing that was changed on its way is taken up."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.consent.site_file import SiteFile, read_site_file
from fedlingua.desk.deployment import invitation
from fedlingua.desk.deployment.invitation import approval_of, take_up, write_invitation
from fedlingua.desk.deployment.server_file import ServerFile, add_site, init_server
from fedlingua.desk.deployment.site_setup import init_site


@pytest.fixture
def invited(tmp_path: Path) -> tuple[ServerFile, SiteFile]:
    """A server that a site was added to, and the site with the server's invitation in its folder."""
    server = init_server(tmp_path / "server", "north", ["fl.example.org"], "0.0.0.0:19092", "127.0.0.1:9093", insecure=False)
    site, join_file = init_site(tmp_path / "site", "clinic", "de-fr", {"phrasebook": "hospital", "sentences": 60}, "", None)
    add_site(server, join_file)
    file, is_new = write_invitation(server)
    assert is_new
    file.rename(site.path.with_name("invitation.toml"))
    return server, site


def test_an_invitation_brings_address_authority_experiment_and_federation(invited: tuple[ServerFile, SiteFile]) -> None:
    server, site = invited
    assert (site.address, site.insecure, site.authority.exists()) == ("", False, False)
    taken, to = take_up(site)
    assert to is not None
    assert taken.address == "fl.example.org:19092"
    assert server.authority is not None
    assert taken.authority.read_bytes() == server.authority.read_bytes()
    hashes = approval_of(server.experiment, server.federation)
    assert approval_of(to.experiment, to.federation) == hashes
    assert to.run == hashes["run"]
    assert take_up(read_site_file(site.path)) == (taken, to)  # at the next start, from the same file
    assert "PRIVATE" not in site.path.with_name("invitation.toml").read_text()


def test_a_sites_own_address_counts_more(invited: tuple[ServerFile, SiteFile]) -> None:
    site = invited[1]
    site.path.write_text(site.path.read_text().replace("[server]\n", '[server]\naddress = "10.0.0.7:9092"\n'))
    assert take_up(read_site_file(site.path))[0].address == "10.0.0.7:9092"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("rounds = 3", "rounds = 4", "it was changed on its way; ask the server's operator for it again"),
        ('direction = "de-fr"', 'direction = "pl-sv"', "it was changed on its way"),
        ("bundle = ", "bundel = ", "bundel = "),
        ('bundle = "', 'bundle = "0', "the server has other code"),
        ("run = ", "# run = ", "got no run; wanted the whole file"),
        ("-----BEGIN", "", ""),
    ],
)
def test_an_invitation_that_was_changed_is_not_taken_up(
    invited: tuple[ServerFile, SiteFile], before: str, after: str, told: str
) -> None:
    site = invited[1]
    file = site.path.with_name("invitation.toml")
    text = file.read_text()
    assert before in text
    if not told:  # a site with a key does not join a server without TLS
        text, told = text[: text.index('"""')] + '""' + text[text.rindex('"""') + 3 :], "set up a new site with --insecure"
    file.write_text(text.replace(before, after, 1))
    with pytest.raises(ConfigError) as caught:
        take_up(site)
    assert told in str(caught.value)


def test_a_site_without_address_and_invitation_is_told_what_it_waits_for(invited: tuple[ServerFile, SiteFile]) -> None:
    site = invited[1]
    (file := site.path.with_name("invitation.toml")).unlink()
    with pytest.raises(ConfigError, match=r"there is no such file; save the one that the server's operator gives every site"):
        take_up(site)
    assert not file.exists()


@pytest.mark.parametrize(
    ("key", "anew"), [("deadline.phase-s = 7200.0", False), ("rounds = 3", True)], ids=["no consent", "consent"]
)
def test_sites_get_an_invitation_anew_if_the_change_needs_their_consent(
    invited: tuple[ServerFile, SiteFile], key: str, anew: bool
) -> None:
    server = invited[0]
    assert write_invitation(server)[1]
    assert not write_invitation(server)[1]
    text = server.experiment.read_text()
    assert key in text
    server.experiment.write_text(text.replace(key, f"{key.split(' = ')[0]} = 5"))
    assert write_invitation(server)[1] == anew
    assert invitation.FILE == "invitation.toml"
