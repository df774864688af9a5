package sdk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The first lines in Go of README.md, run as they stand there. They had no imports and no main once.
func TestTheSampleInTheReadmeRuns(t *testing.T) {
	readme := string(must(os.ReadFile("../../../README.md"))(t))
	_, rest, found := strings.Cut(readme, "```go\n")
	sample, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("README.md has no sample in Go")
	}
	sample = strings.Replace(sample, "couchbase://127.0.0.1", shared.connectionString(), 1)
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command("go", "run", file).CombinedOutput()
	if err != nil || string(output) != "map[from:Go]\n" {
		t.Fatalf("%v: %s", err, output)
	}
}
