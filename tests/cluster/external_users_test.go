package cluster

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

const (
	issuerName = "https://issuer.example.org"
	audience   = "kedge"
)

// issuer signs tokens of external users.
type issuer struct{ private ed25519.PrivateKey }

func newIssuer(t *testing.T) issuer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{private}
}

func toJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// settings returns the document of /settings/jwt: members of the group "devs" are in the local group "developers".
func (i issuer) settings(t *testing.T) string {
	t.Helper()
	public := i.private.Public().(ed25519.PublicKey)
	key := map[string]string{
		"kid": "first", "use": "sig", "kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(public),
	}
	return string(toJSON(t, map[string]any{
		"enabled": true,
		"issuers": []any{map[string]any{
			"name": issuerName, "audiences": []string{audience}, "algorithms": []string{"EdDSA"}, "groupsClaim": "groups",
			"rules": []any{map[string]string{"value": "devs", "group": "developers"}},
			"jwks":  map[string]any{"keys": []any{key}},
		}},
	}))
}

// token returns a token of a user who is in these groups of the issuer.
func (i issuer) token(t *testing.T, name string, groups ...string) string {
	t.Helper()
	now := time.Now().Unix()
	encode := func(value any) string { return base64.RawURLEncoding.EncodeToString(toJSON(t, value)) }
	message := encode(map[string]string{"alg": "EdDSA", "typ": "JWT", "kid": "first"}) + "." + encode(map[string]any{
		"iss": issuerName, "aud": audience, "sub": name, "iat": now, "exp": now + 3600, "groups": groups,
	})
	return message + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(i.private, []byte(message)))
}

// ask sends a request to the management of a node, as the administrator or with a token.
func (n *node) ask(t *testing.T, method, path, body, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, fmt.Sprintf("http://%s:%d%s", n.host, n.mgmt, path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	} else {
		request.SetBasicAuth(user, password)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// change sends a request of the administrator that has to succeed.
func (n *node) change(t *testing.T, method, path, body string) {
	t.Helper()
	if code, text := n.ask(t, method, path, body, ""); code != http.StatusOK {
		t.Fatalf("%s: %s %s: %d %s", n.name, method, path, code, text)
	}
}

// rolesOf returns the roles that each node gives to the owner of a token; none if it does not accept the token.
func (all nodes) rolesOf(t *testing.T, token string) []string {
	t.Helper()
	roles := make([]string, len(all))
	for number, each := range all {
		code, text := each.ask(t, http.MethodGet, "/whoami", "", token)
		if code == http.StatusUnauthorized {
			continue
		}
		var about struct{ Roles []struct{ Role string } }
		if err := json.Unmarshal([]byte(text), &about); err != nil {
			t.Fatalf("%s: %d %s: %v", each.name, code, text, err)
		}
		for _, it := range about.Roles {
			roles[number] += it.Role + " "
		}
	}
	return roles
}

// The settings of external users, their roles and the groups that theirs map to are those of the cluster: whichever node
// changes them, all nodes follow at once, and so does one that was away.
func (all nodes) shareExternalUsers(t *testing.T) {
	t.Helper()
	of := newIssuer(t)
	want := func(token string, roles ...string) {
		t.Helper()
		wanted := ""
		for _, role := range roles {
			wanted += role + " "
		}
		for number, found := range all.rolesOf(t, token) {
			if found != wanted {
				t.Fatalf("%s gives the roles %q, not %q", all[number].name, found, wanted)
			}
		}
	}
	ada, eve := of.token(t, "ada", "devs"), of.token(t, "eve")
	form := func(name, value string) string { return url.Values{name: {value}}.Encode() }
	want(ada)
	all[0].change(t, http.MethodPut, "/settings/jwt", of.settings(t))
	want(ada)
	all[1].change(t, http.MethodPut, "/settings/rbac/groups/developers", form("roles", "data_reader[default]"))
	want(ada, "data_reader")
	want(eve)
	all[2].change(t, http.MethodPut, "/settings/rbac/users/external/eve", form("roles", "ro_admin"))
	want(eve, "ro_admin")
	want(of.token(t, "mallory"))
	want(newIssuer(t).token(t, "ada", "devs"))

	all[1].change(t, http.MethodPost, "/settings/ldap", "hosts=ldap.example.org&port=636&encryption=TLS&"+
		url.Values{"userDNMapping": {`{"template":"uid=%u,ou=people,dc=example,dc=org"}`}}.Encode())
	_, directory := all[1].ask(t, http.MethodGet, "/settings/ldap", "", "")
	if !strings.Contains(directory, "uid=%u,ou=people") {
		t.Fatalf("the directory is not set: %s", directory)
	}
	for _, each := range all {
		if _, text := each.ask(t, http.MethodGet, "/settings/ldap", "", ""); text != directory {
			t.Fatalf("%s has another directory: %s", each.name, text)
		}
	}

	// One is away while the rights change.
	away := last(all)
	away.kill()
	all[0].change(t, http.MethodPut, "/settings/rbac/groups/developers", form("roles", "data_writer[default]"))
	all[0].change(t, http.MethodDelete, "/settings/rbac/users/external/eve", "")
	start(t, away)
	until(t, "the node that was away has the rights", func() bool {
		return strings.TrimSpace(nodes{away}.rolesOf(t, ada)[0]) == "data_writer" && nodes{away}.rolesOf(t, eve)[0] == ""
	})
	want(ada, "data_writer")
	want(eve)
	all[1].change(t, http.MethodDelete, "/settings/jwt", "")
	want(ada)
}

func TestExternalUsersOfAllNodes(t *testing.T) {
	t.Parallel()
	clusterOf(t, 3, 1, nil).shareExternalUsers(t)
}

// While etcd is away, external users log in as before, also at a node that starts.
func TestEtcdHasTheExternalUsers(t *testing.T) {
	t.Parallel()
	store := newEtcd(t, debian)
	all := clusterIn(t, etcds{store}.url(), t.TempDir(), 3, 1, nil)
	all.shareExternalUsers(t)
	of := newIssuer(t)
	all[0].change(t, http.MethodPut, "/settings/jwt", of.settings(t))
	token := of.token(t, "ada", "devs")
	store.kill()
	if code, text := all[1].ask(t, http.MethodDelete, "/settings/jwt", "", ""); code != http.StatusServiceUnavailable {
		t.Fatalf("the settings are changed without the store: %d %s", code, text)
	}
	last(all).kill()
	last(all).begin(t)
	until(t, "a node that starts meanwhile has the settings", func() bool {
		// Its port may be closed yet.
		conn, err := http.Get(fmt.Sprintf("http://%s:%d/pools", last(all).host, last(all).mgmt))
		if err != nil {
			return false
		}
		conn.Body.Close()
		return nodes{last(all)}.rolesOf(t, token)[0] != ""
	})
	for number, roles := range all.rolesOf(t, token) {
		if roles != "data_writer " {
			t.Fatalf("%s gives the roles %q", all[number].name, roles)
		}
	}
	store.start(t)
	last(all).waitReady(t)
}
