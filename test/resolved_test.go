package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// ownNetwork says that this process is in the namespaces that enterOwnNetwork makes.
const ownNetwork = "SAFEBROWSING_TEST_OWN_NETWORK"

// enterOwnNetwork gives a command namespaces with the network of the documents: this machine
// has 192.0.2.1, and our server 192.0.2.53. Its arguments are the folder that becomes
// /etc/systemd, and the command. systemd-resolved asks no server until an interface has a
// carrier and an address, so there is a pair of interfaces. It gives up root for its own user.
const enterOwnNetwork = `set -e
ip link set lo up
ip link add lan type veth peer name wire
ip address add 192.0.2.1/24 dev lan
ip address add 192.0.2.53/32 dev lo
ip link set wire up
ip link set lan up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/systemd
{ cat /etc/passwd; echo systemd-resolve:x:65534:65534::/:/usr/sbin/nologin; } >/run/passwd
mount --bind /run/passwd /etc/passwd
mount --bind "$1" /etc/systemd
shift
exec "$@"`

// TestSystemdResolvedInFront runs systemd-resolved with the lines of docs/network.md, where
// it cannot disturb the DNS of this machine.
func TestSystemdResolvedInFront(t *testing.T) {
	testkit.Long(t)
	program := resolvedInOwnNetwork(t)
	if program == "" {
		return
	}
	w := newWorld(t)
	w.host = "192.0.2.53"
	w.start(strings.Replace(w.corefile(blockList(t, "blocked.example")), ".:0 {", ".:53 {", 1))
	w.updated(1)
	startForwarder(t, program)
	checkForwarder(t, "systemd-resolved", "127.0.0.53:53")
}

// resolvedInOwnNetwork returns the path of systemd-resolved if this process has a network of its own. Else it has
// run the calling test in one, and returns "".
func resolvedInOwnNetwork(t *testing.T) (program string) {
	t.Helper()
	program, err := findResolved()
	if err == nil && os.Geteuid() != 0 {
		err = errors.New("namespaces need root")
	}
	testkit.Need(t, err)
	if os.Getenv(ownNetwork) == "" {
		againInOwnNetwork(t)
		return ""
	}
	return program
}

// findResolved returns the path of systemd-resolved. .ci/tools unpacks it into a folder of PATH.
func findResolved() (string, error) {
	const installed = "/lib/systemd/systemd-resolved"
	if _, err := os.Stat(installed); err == nil {
		return installed, nil
	}
	return exec.LookPath("systemd-resolved")
}

// againInOwnNetwork runs the calling test with the network and the configuration of the documents.
func againInOwnNetwork(t *testing.T) {
	t.Helper()
	etc := t.TempDir()
	drop := filepath.Join(etc, "resolved.conf.d")
	if err := os.Mkdir(drop, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(drop, "safebrowsing.conf"), []byte(documentedConfig(t, "systemd-resolved")), 0o644); err != nil {
		t.Fatal(err)
	}
	inNetwork(t, allNamespaces, enterOwnNetwork, etc, "true")
}

// allNamespaces are flags of unshare for a process that is process 1 of its namespaces: its end is that of all that
// it has started.
var allNamespaces = []string{"--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"}

// inNetwork runs the calling test in new namespaces, whose network a script makes of an argument, with a value of
// ownNetwork, and returns what it says.
func inNetwork(t *testing.T, namespaces []string, script, arg, value string, flags ...string) string {
	t.Helper()
	testkit.Program(t, "ip")
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	if out, err := exec.Command("unshare", slices.Concat(namespaces, []string{"true"})...).CombinedOutput(); err != nil {
		testkit.Need(t, fmt.Errorf("no namespaces, as in some containers: %w, %s", err, out))
	}
	c := exec.Command("unshare", slices.Concat(namespaces, []string{"sh", "-c", script, "sh", arg, os.Args[0], "-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=3m"}, flags)...)
	c.Env = append(os.Environ(), ownNetwork+"="+value)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in its own network, %s: %v\n%s", value, err, out)
	}
	return string(out)
}
