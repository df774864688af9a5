"""Users, groups and roles over the management API, and what a role lets its user do."""

import uuid
from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import (
    AuthenticationException,
    CouchbaseException,
    GroupNotFoundException,
    UserNotFoundException,
)
from couchbase.management.users import Group, Role, User
from couchbase.options import ClusterOptions

import kedge_server


@pytest.fixture
def manager(cluster):
    return cluster.users()


@pytest.fixture
def name(manager):
    name = f"u-{uuid.uuid4().hex[:12]}"
    yield name
    try:
        manager.drop_user(name)
    except UserNotFoundException:
        pass


def reader():
    return Role(name="data_reader", bucket=kedge_server.BUCKET)


def test_users_and_groups(manager, name):
    group = f"g-{name}"
    manager.upsert_group(Group(name=group, description="may read", roles={reader()}))
    assert manager.get_group(group).description == "may read"
    assert group in [one.name for one in manager.get_all_groups()]
    manager.upsert_user(User(username=name, display_name="Ada", password="secret", groups={group}, roles=set()))
    found = manager.get_user(name)
    assert found.user.display_name == "Ada"
    assert found.user.groups == {group}
    assert "data_reader" in [one.role.name for one in found.effective_roles]
    assert name in [one.user.username for one in manager.get_all_users()]
    manager.drop_group(group)
    with pytest.raises(GroupNotFoundException):
        manager.get_group(group)
    assert not manager.get_user(name).user.groups
    manager.drop_user(name)
    with pytest.raises(UserNotFoundException):
        manager.get_user(name)


def test_roles_are_listed(manager):
    names = {one.role.name for one in manager.get_roles()}
    assert {"admin", "data_reader", "data_writer", "scope_admin"} <= names


def test_a_reader_reads_and_does_not_write(server, manager, collection, key, name):
    collection.upsert(key, {"a": 1})
    manager.upsert_user(User(username=name, display_name="", password="secret", roles={reader()}))
    own = Cluster(server.connection_string, ClusterOptions(PasswordAuthenticator(name, "secret")))
    try:
        own.wait_until_ready(timedelta(seconds=60))
        mine = own.bucket(kedge_server.BUCKET).default_collection()
        assert mine.get(key).content_as[dict] == {"a": 1}
        with pytest.raises(CouchbaseException):
            mine.upsert(key, {"a": 2})
    finally:
        own.close()
    assert collection.get(key).content_as[dict] == {"a": 1}


def test_a_user_changes_its_own_password(server, manager, collection, key, name):
    collection.upsert(key, {"a": 1})
    manager.upsert_user(User(username=name, display_name="Ada", password="secret", roles={reader()}))

    def log_in(password):
        return Cluster(server.connection_string, ClusterOptions(PasswordAuthenticator(name, password)))

    before = log_in("secret")
    before.users().change_password("other secret")
    before.close()
    with pytest.raises(AuthenticationException):
        log_in("secret")
    after = log_in("other secret")
    try:
        assert after.bucket(kedge_server.BUCKET).default_collection().get(key).content_as[dict] == {"a": 1}
    finally:
        after.close()
    found = manager.get_user(name).user
    assert (found.display_name, [role.name for role in found.roles]) == ("Ada", ["data_reader"])
