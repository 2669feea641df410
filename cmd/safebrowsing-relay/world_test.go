package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// invoke runs a command line and returns its exit status and its output.
func invoke(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var w, e bytes.Buffer
	status = run(t.Context(), append([]string{"safebrowsing-relay"}, args...), strings.NewReader(""), &w, &e)
	return status, w.String(), e.String()
}

// world is a server and a folder.
type world struct {
	*protocoltest.Server
	endpoint string
	dir      string
}

// newWorld starts a server of lists, without a key in the environment.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Setenv(config.KeyVariable, "")
	t.Setenv("STATE_DIRECTORY", filepath.Join(t.TempDir(), "none"))
	server, endpoint := protocoltest.Small(t)
	return &world{Server: server, endpoint: endpoint, dir: filepath.Join(t.TempDir(), "db")}
}

// filled is a world whose folder holds the server's lists: a relay has fetched them.
func filled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	t.Run("fetch", func(t *testing.T) { newRelay(t, relayConfigOf(t, "-db", w.dir, "-endpoint", w.endpoint)) })
	w.ClientStarted()
	return w
}

func write(t *testing.T, file, content string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(file, []byte(content), 0o600))
}

func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	testkit.Must(t, err)
	return string(raw)
}
