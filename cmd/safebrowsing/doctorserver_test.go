package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// protocolsOfOthers are lines of protocols in files of their own.
var protocolsOfOthers []string

// A server that takes the connection and never answers keeps nobody waiting for long.
func TestTheDoctorGivesUpOnAServerThatNeverAnswers(t *testing.T) {
	for _, of := range append(protocolsOfOthers, "", "protocol webrisk\nbudget 5\n") {
		corefile := t.TempDir() + "/Corefile"
		write(t, corefile, fmt.Sprintf(". {\nsafebrowsing {\nendpoint http://192.0.2.1\n%sdb off\n}\n}\n", of))
		blocks, err := readCorefile(corefile)
		testkit.Must(t, err)
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			var silent sync.WaitGroup
			e := &examination{Doctor: say.Doctor{W: &out}, dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				silent.Go(func() { io.Copy(io.Discard, theirs) })
				return ours, nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 100*serverTimeout)
			defer cancel()
			begun := time.Now()
			e.server(ctx, blocks[0].Block, "http://192.0.2.1")
			if took := time.Since(begun); took > 2*serverTimeout || !strings.Contains(out.String(), isProblem) {
				t.Errorf("%q: the doctor waited %s, and has found a problem: %t, want one within %s; %s", of, took, strings.Contains(out.String(), isProblem), serverTimeout, out.String())
			}
			silent.Wait()
		})
		closeBlocks(blocks)
	}
}
