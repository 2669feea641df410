package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// asServer has this test run as the server, in a process of its own.
const asServer = "COREDNS_OF_THIS_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheHeadroomDependsOnTheMemory(t *testing.T) {
	tests := []struct {
		name         string
		memory, want int64
	}{
		{"unknown", 0, 0},
		{"a router", 128 * mib, 0},
		{"a small machine", 512*mib - 1, 0},
		{"the least", 512 * mib, 16 * mib},
		{"a cheap virtual machine", 1024 * mib, 32 * mib},
		{"a rack", 512 << 30, 64 * mib},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := headroomOf(tt.memory); got != tt.want {
				t.Errorf("Expected %d MiB, got %d", tt.want/mib, got/mib)
			}
		})
	}
}

// logOfStart starts this server on a port of 127.0.0.1 with variables in addition to its
// environment, and returns what it has logged when it has started.
func logOfStart(t *testing.T, port uint16, env ...string) string {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "Corefile")
	testkit.Must(t, os.WriteFile(conf, fmt.Appendf(nil, ".:%d {\n bind 127.0.0.1\n debug\n whoami\n}\n", port), 0o600))
	output := new(testkit.Output)
	server := exec.Command(os.Args[0], "-conf", conf)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GOGC=") && !strings.HasPrefix(e, "GOMEMLIMIT=") {
			server.Env = append(server.Env, e)
		}
	}
	server.Env = append(append(server.Env, asServer+"=1"), env...)
	server.Stdout, server.Stderr = output, output
	testkit.Must(t, server.Start())
	defer func() {
		server.Process.Kill()
		server.Wait()
	}()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if log := output.String(); strings.Contains(log, "CoreDNS-") { // the last line of a start
			return log
		}
	}
	t.Fatalf("The server has not started in time:\n%s", output)
	return ""
}

func TestThePaceIsInTheLogAtDebug(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells how much memory there is")
	}
	tests := []struct {
		name, env string
		want      string // "": no line
	}{
		{"a memory limit of a router", "GOMEMLIMIT=40MiB", "[DEBUG] There are 40 MiB of memory: the garbage collector runs when the heap has doubled. Set GOGC to change that."},
		{"GOGC wins", "GOGC=100", ""},
	}
	if lookup.UsableMemory() > 2048*mib {
		tests = append(tests, struct{ name, env, want string }{"a memory limit of a small machine", "GOMEMLIMIT=1GiB",
			"[DEBUG] There are 1024 MiB of memory: the garbage collector runs when the heap has grown by 32 MiB, or has doubled if that is more. Set GOGC to change that."})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log := logOfStart(t, 0, tt.env)
			if got := strings.Count(log, "of memory"); tt.want == "" && got != 0 || tt.want != "" && got != 1 {
				t.Errorf("Expected one line about memory, or none if GOGC is set, got\n%s", log)
			}
			if !strings.Contains(log, tt.want+"\n") {
				t.Errorf("Expected %q, got\n%s", tt.want, log)
			}
		})
	}
}
