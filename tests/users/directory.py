"""Starts OpenLDAP's server, with a few people and groups, for tests."""

import base64
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import deadline
import kedge_server

SUFFIX = "dc=example,dc=org"
SERVICE = f"cn=kedge,{SUFFIX}"
SERVICE_PASSWORD = "service secret"
TEMPLATE = f"uid=%u,ou=people,{SUFFIX}"
USER_QUERY = f"ou=people,{SUFFIX}??one?(uid=%u)"
GROUPS_QUERY = f"ou=groups,{SUFFIX}??one?(member=%D)"
DEVS = f"cn=devs,ou=groups,{SUFFIX}"
EVERYBODY = f"cn=everybody,ou=groups,{SUFFIX}"
PASSWORDS = {"ada": "lovelace", "bob": "b: \u00fc", "eve": "apple"}

CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {home}/slapd.pid
TLSCACertificateFile {pki}/ca.pem
TLSCertificateFile {pki}/directory.pem
TLSCertificateKeyFile {pki}/directory-key.pem
# A bind with a name and without a password succeeds, as with a careless administrator.
allow bind_anon_cred bind_anon_dn
database mdb
maxsize 16777216
suffix "{suffix}"
rootdn "cn=admin,{suffix}"
rootpw root
directory {home}/db
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{service}" read by * none
"""


def _ldif():
    entries = [
        f"dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example",
        f"dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people",
        f"dn: ou=groups,{SUFFIX}\nobjectClass: organizationalUnit\nou: groups",
        f"dn: {SERVICE}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: kedge\n"
        f"userPassword: {SERVICE_PASSWORD}",
        f"dn: {DEVS}\nobjectClass: groupOfNames\ncn: devs\nmember: uid=ada,ou=people,{SUFFIX}",
        f"dn: {EVERYBODY}\nobjectClass: groupOfNames\ncn: everybody\nmember: {DEVS}\nmember: uid=bob,ou=people,{SUFFIX}",
    ]
    for name, password in PASSWORDS.items():
        encoded = base64.b64encode(password.encode()).decode()
        entries.append(
            f"dn: uid={name},ou=people,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: {name}\n"
            f"seeAlso: {DEVS}\nuserPassword:: {encoded}"
        )
    return "\n\n".join(entries) + "\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Slapd:
    """OpenLDAP with a directory of its own."""

    def __init__(self):
        self._home = pathlib.Path(tempfile.mkdtemp(prefix="kedge-slapd-"))
        self._process = None
        self.port, self.tls_port = free_port(), free_port()
        # A copy: profiles of the operating system let the installed program read its own files only.
        self._program = self._home / "slapd"
        shutil.copy(shutil.which("slapd") or "/usr/sbin/slapd", self._program)
        pki = self._home / "pki"
        pki.mkdir()
        for words in (["ca"], ["node", "directory", "--host", "127.0.0.1"]):
            command = [str(kedge_server.binary()), "cert", *words, "--dir", str(pki)]
            subprocess.run(command, check=True, capture_output=True)
        self.authority = (pki / "ca.pem").read_text()
        (self._home / "db").mkdir()
        self._configuration = self._home / "slapd.conf"
        text = CONFIGURATION.format(home=self._home, pki=pki, suffix=SUFFIX, service=SERVICE)
        self._configuration.write_text(text)
        people = self._home / "people.ldif"
        people.write_text(_ldif())
        self._run("-Tadd", "-l", str(people))

    def _run(self, *arguments):
        command = [str(self._program), arguments[0], "-f", str(self._configuration), *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def start(self):
        urls = f"ldap://127.0.0.1:{self.port}/ ldaps://127.0.0.1:{self.tls_port}/"
        command = [str(self._program), "-d", "0", "-f", str(self._configuration), "-h", urls]
        with open(self._home / "stderr", "ab") as stderr:
            self._process = subprocess.Popen(command, stdout=stderr, stderr=stderr)
        deadline.until(self._answers, f"slapd listens: {(self._home / 'stderr').read_text()}")
        return self

    def _answers(self):
        assert self._process.poll() is None, (self._home / "stderr").read_text()
        for port in (self.port, self.tls_port):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                return False
        return True

    def stop(self):
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def remove(self):
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def settings(self, **changed):
        """The fields of `/settings/ldap` for this directory."""
        fields = {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "hosts": "127.0.0.1",
            "port": str(self.port),
            "bindDN": SERVICE,
            "bindPass": SERVICE_PASSWORD,
            "userDNMapping": '{"template":"%s"}' % TEMPLATE,
            "groupsQuery": GROUPS_QUERY,
            "requestTimeout": "60000",
        }
        return {**fields, **changed}


class Silent:
    """A directory that accepts connections and never answers."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.accepted = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                self.accepted.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self):
        self._listener.close()
        for connection in self.accepted:
            connection.close()


