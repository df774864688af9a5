package kedge;

import static kedge.Shared.LIMIT;
import static kedge.Shared.newKey;
import static kedge.Shared.wantInt;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.couchbase.client.core.env.Authenticator;
import com.couchbase.client.core.env.CertificateAuthenticator;
import com.couchbase.client.core.env.PasswordAuthenticator;
import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.msg.kv.DurabilityLevel;
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.ClusterOptions;
import com.couchbase.client.java.kv.UpsertOptions;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Flux;

class TlsTest {
  private static final Authenticator BY_PASSWORD =
      PasswordAuthenticator.create(KedgeServer.USER, KedgeServer.PASSWORD);

  @TempDir Path directory;

  /** Makes a CA, and the certificates of a node and of the user. */
  private Path certify(String name) throws IOException, InterruptedException {
    Path pki = directory.resolve(name);
    List<List<String>> all =
        List.of(
            List.of("ca"),
            List.of("node", "db1", "--host", "127.0.0.1"),
            List.of("client", KedgeServer.USER));
    for (List<String> words : all) {
      List<String> command = new ArrayList<>(List.of(KedgeServer.binary().toString(), "cert"));
      command.addAll(words);
      command.addAll(List.of("--dir", pki.toString()));
      Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
      String output = new String(process.getInputStream().readAllBytes());
      assertEquals(0, process.waitFor(), output);
    }
    return pki;
  }

  private static KedgeServer start(String... flags) {
    List<String> all = new ArrayList<>(List.of("--kv-tls-port=0", "--mgmt-tls-port=0"));
    all.addAll(List.of(flags));
    return new KedgeServer(all.toArray(String[]::new));
  }

  private static KedgeServer certified(Path pki, String... flags) {
    List<String> all = new ArrayList<>(List.of(flags));
    all.add("--tls-cert=" + pki.resolve("db1.pem"));
    all.add("--tls-key=" + pki.resolve("db1-key.pem"));
    return start(all.toArray(String[]::new));
  }

  private static Cluster connect(KedgeServer server, Path ca, Authenticator authenticator) {
    return Cluster.connect(
        server.connectionString(),
        ClusterOptions.clusterOptions(authenticator)
            .environment(
                env ->
                    env.securityConfig(security -> security.enableTls(true).trustCertificate(ca))
                        .timeoutConfig(
                            times ->
                                times
                                    .kvTimeout(LIMIT)
                                    .kvDurableTimeout(LIMIT)
                                    .disconnectTimeout(LIMIT))));
  }

  /** Stores and reads: one document, durable ones, and many at a time. */
  private static void use(Cluster cluster) {
    var collection = Shared.open(cluster, KedgeServer.BUCKET);
    String key = newKey();
    collection.upsert(key, 1);
    wantInt(collection, key, 1);
    for (DurabilityLevel level :
        List.of(
            DurabilityLevel.MAJORITY,
            DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE,
            DurabilityLevel.PERSIST_TO_MAJORITY)) {
      collection.upsert(key + level, 2, UpsertOptions.upsertOptions().durability(level));
      wantInt(collection, key + level, 2);
    }
    var many = collection.reactive();
    Flux.fromStream(IntStream.range(0, 1_000).boxed())
        .flatMap(n -> many.upsert(key + "-" + n, n))
        .blockLast(LIMIT);
    wantInt(collection, key + "-999", 999);
  }

  private static void wantUnready(Cluster cluster) {
    assertThrows(
        CouchbaseException.class,
        () -> cluster.bucket(KedgeServer.BUCKET).waitUntilReady(Duration.ofSeconds(2)));
    cluster.disconnect();
  }

  private static Authenticator byCertificate(Path pki)
      throws IOException, GeneralSecurityException {
    byte[] chain = Files.readAllBytes(pki.resolve(KedgeServer.USER + ".pem"));
    var certificate =
        (X509Certificate)
            CertificateFactory.getInstance("X.509")
                .generateCertificate(new ByteArrayInputStream(chain));
    String pem = Files.readString(pki.resolve(KedgeServer.USER + "-key.pem"));
    byte[] der =
        Base64.getMimeDecoder()
            .decode(pem.replaceAll("-----[A-Z ]+-----", ""));
    var key = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(der));
    return CertificateAuthenticator.fromKey(key, null, List.of(certificate));
  }

  @Test
  void caOfTlsAuto() {
    try (KedgeServer server = start("--tls=auto")) {
      Cluster cluster = connect(server, server.autoCa(), BY_PASSWORD);
      use(cluster);
      cluster.disconnect();
    }
  }

  @Test
  void password() throws Exception {
    Path pki = certify("pki");
    try (KedgeServer server = certified(pki)) {
      Cluster cluster = connect(server, pki.resolve("ca.pem"), BY_PASSWORD);
      use(cluster);
      cluster.disconnect();
    }
  }

  @Test
  void clientCertificate() throws Exception {
    Path pki = certify("pki");
    Path ca = pki.resolve("ca.pem");
    try (KedgeServer server = certified(pki, "--client-certs=mandatory", "--client-ca=" + ca)) {
      Cluster cluster = connect(server, ca, byCertificate(pki));
      use(cluster);
      cluster.disconnect();
      wantUnready(connect(server, ca, BY_PASSWORD));
    }
  }

  @Test
  void anotherCa() throws Exception {
    try (KedgeServer server = certified(certify("pki"))) {
      wantUnready(connect(server, certify("other").resolve("ca.pem"), BY_PASSWORD));
    }
  }
}
