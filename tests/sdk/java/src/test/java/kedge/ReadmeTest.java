package kedge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The first lines in Java of README.md, run as they stand there. They had no imports and no main once. */
class ReadmeTest {
  @Test
  void theSampleInTheReadmeRuns(@TempDir Path directory) throws Exception {
    String readme = Files.readString(Path.of("../../../README.md"));
    String sample = readme.split("```java\n", 2)[1].split("```", 2)[0];
    Path file = directory.resolve("Hello.java");
    Files.writeString(
        file, sample.replace("couchbase://127.0.0.1", Shared.SERVER.connectionString()));
    Path output = directory.resolve("output");
    Process process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp",
                System.getProperty("java.class.path"),
                file.toString())
            .redirectOutput(output.toFile())
            .redirectError(directory.resolve("errors").toFile())
            .start();
    try {
      assertTrue(process.waitFor(120, TimeUnit.SECONDS));
    } finally {
      process.destroyForcibly();
    }
    String errors = Files.readString(directory.resolve("errors"));
    assertEquals("{\"from\":\"Java\"}\n", Files.readString(output), errors);
    assertEquals(0, process.exitValue(), errors);
  }
}
