package testkit

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// Packages are tested side by side: each is a process of its own.
func TestNoTwoProcessesAreGivenOneAddress(t *testing.T) {
	const taken = "SAFEBROWSING_TEST_TAKEN"
	if address := os.Getenv(taken); address != "" {
		if claim(address) {
			t.Errorf("%s was given to another process", address)
		}
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("addresses are claimed on Linux only")
	}
	other := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	other.Env = append(os.Environ(), taken+"="+FreeAddress(t, "127.0.0.1"))
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
