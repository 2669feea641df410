//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// systemd-resolved is a user of its own: a folder that setup makes can be read, whatever the umask is.
func TestSetupWritesWhatSystemdResolvedCanRead(t *testing.T) {
	i := newInstalled(t)
	i.holders = []holder{at("systemd-resolve", "systemd-resolved.service", "127.0.0.53")}
	testkit.Must(t, os.MkdirAll(filepath.Join(i.root, "etc/systemd"), 0o755))
	flags := flagsWith(t, "-serve", "machine")
	defer syscall.Umask(syscall.Umask(0o077))
	if out, err := i.setup("", flags...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if info, err := os.Stat(filepath.Join(i.root, filepath.Dir(resolvedFile("").path))); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
}
