package sdk

import (
	"slices"
	"strings"
	"testing"

	"github.com/couchbase/gocb/v2"
)

var reader = gocb.Role{Name: "data_reader", Bucket: bucketName}

func newName(t *testing.T, prefix string) string {
	t.Helper()
	key := newKey(t)
	return prefix + key[strings.LastIndex(key, "-")+1:]
}

func TestUsersAndGroups(t *testing.T) {
	manager := cluster.Users()
	user, group := newName(t, "u-"), newName(t, "g-")
	settings := gocb.Group{Name: group, Description: "may read", Roles: []gocb.Role{reader}}
	if err := manager.UpsertGroup(settings, nil); err != nil {
		t.Fatal(err)
	}
	stored := must(manager.GetGroup(group, nil))(t)
	if stored.Description != "may read" || !slices.Equal(stored.Roles, settings.Roles) {
		t.Fatalf("%+v", stored)
	}
	isIt := func(one gocb.Group) bool { return one.Name == group }
	if !slices.ContainsFunc(must(manager.GetAllGroups(nil))(t), isIt) {
		t.Fatal("the group is not in the list")
	}

	ada := gocb.User{Username: user, DisplayName: "Ada", Password: "secret", Groups: []string{group}}
	if err := manager.UpsertUser(ada, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.DropUser(user, nil) })
	found := must(manager.GetUser(user, nil))(t)
	if found.DisplayName != "Ada" || !slices.Equal(found.Groups, []string{group}) {
		t.Fatalf("%+v", found)
	}
	isReader := func(one gocb.RoleAndOrigins) bool { return one.Role == reader }
	if !slices.ContainsFunc(found.EffectiveRoles, isReader) {
		t.Fatalf("%+v", found.EffectiveRoles)
	}
	isHer := func(one gocb.UserAndMetadata) bool { return one.Username == user }
	if !slices.ContainsFunc(must(manager.GetAllUsers(nil))(t), isHer) {
		t.Fatal("the user is not in the list")
	}

	if err := manager.DropGroup(group, nil); err != nil {
		t.Fatal(err)
	}
	_, err := manager.GetGroup(group, nil)
	wantError(t, err, gocb.ErrGroupNotFound)
	if groups := must(manager.GetUser(user, nil))(t).Groups; len(groups) != 0 {
		t.Fatalf("%v", groups)
	}
	if err := manager.DropUser(user, nil); err != nil {
		t.Fatal(err)
	}
	_, err = manager.GetUser(user, nil)
	wantError(t, err, gocb.ErrUserNotFound)
	wantError(t, manager.DropUser(user, nil), gocb.ErrUserNotFound)
}

func TestRolesAreListed(t *testing.T) {
	roles := must(cluster.Users().GetRoles(nil))(t)
	for _, name := range []string{"admin", "data_reader", "data_writer", "scope_admin"} {
		if !slices.ContainsFunc(roles, func(one gocb.RoleAndDescription) bool { return one.Name == name }) {
			t.Errorf("no role %s", name)
		}
	}
}

func TestAReaderReadsAndDoesNotWrite(t *testing.T) {
	manager := cluster.Users()
	name, key := newName(t, "u-"), newKey(t)
	must(collection.Upsert(key, 1, nil))(t)
	settings := gocb.User{Username: name, Password: "secret", Roles: []gocb.Role{reader}}
	if err := manager.UpsertUser(settings, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.DropUser(name, nil) })
	own := must(connect(shared, name, "secret"))(t)
	defer own.Close(nil)
	mine := own.Bucket(bucketName).DefaultCollection()
	wantContent(t, mine, key, 1)
	if _, err := mine.Upsert(key, 2, &gocb.UpsertOptions{RetryStrategy: failFast{}}); err == nil {
		t.Fatal("a reader wrote")
	}
	wantContent(t, collection, key, 1)
}

func TestAUserChangesItsOwnPassword(t *testing.T) {
	manager := cluster.Users()
	name, key := newName(t, "u-"), newKey(t)
	must(collection.Upsert(key, 1, nil))(t)
	settings := gocb.User{Username: name, DisplayName: "Ada", Password: "secret", Roles: []gocb.Role{reader}}
	if err := manager.UpsertUser(settings, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.DropUser(name, nil) })
	open := func(password string) (*gocb.Cluster, error) {
		own := must(connect(shared, name, password))(t)
		t.Cleanup(func() { _ = own.Close(nil) })
		options := &gocb.WaitUntilReadyOptions{RetryStrategy: failFast{}}
		return own, own.Bucket(bucketName).WaitUntilReady(readyTimeout, options)
	}
	before := must(open("secret"))(t)
	if err := before.Users().ChangePassword("other secret", nil); err != nil {
		t.Fatal(err)
	}
	_, err := open("secret")
	wantError(t, err, gocb.ErrAuthenticationFailure)
	after := must(open("other secret"))(t)
	wantContent(t, after.Bucket(bucketName).DefaultCollection(), key, 1)
	found := must(manager.GetUser(name, nil))(t)
	if found.DisplayName != "Ada" || !slices.Equal(found.Roles, settings.Roles) {
		t.Fatalf("%+v", found)
	}
}
