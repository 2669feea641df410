package testkit

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
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

// A program that is being started has the sockets of this process, until it runs.
func TestAFreeAddressIsFreeWhileProgramsStart(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("on Linux only no program starts while an address is looked at")
	}
	ended := make(chan struct{})
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					_ = exec.Command(os.Args[0], "-test.run=^$").Run()
				}
			}
		})
	}
	for range 500 {
		address := FreeAddr(t)
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			continue
		}
		l.Close()
	}
	close(ended)
	starting.Wait()
}
