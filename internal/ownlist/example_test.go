package ownlist_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// One file may mix formats. Over all files, the entry with the most labels decides.
func ExampleBest() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "blocklist.txt")
	text := "host.example\n0.0.0.0 hosts.example\n*.below.example\n||tree.example^\nzone.example CNAME .\n/regular|expression/\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	block, err := ownlist.Open(ownlist.Config{Path: path}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer block.Close()
	fmt.Println(block.State().Entries, "entries;", block.State().Remarks())

	allow := ownlist.Hosts("Corefile", []ownlist.HostEntry{{Host: lookup.FromQname("good.tree.example.")}})
	for _, qname := range []string{
		"host.example.", "www.host.example.", "www.below.example.", "bad.tree.example.", "www.good.tree.example.",
	} {
		host := lookup.FromQname(qname)
		match, found := ownlist.Best([]*ownlist.File{block, allow}, host, time.Now())
		switch {
		case !found:
			fmt.Println(qname, "is in no list")
		case match.Allow:
			fmt.Println(qname, "is allowed by", match.Name(host))
		default:
			fmt.Println(qname, "is blocked by", match.Name(host))
		}
	}
	// Output:
	// 5 entries; [1 line is not supported (1 regular expression, first at line 6)]
	// host.example. is blocked by host.example
	// www.host.example. is in no list
	// www.below.example. is blocked by below.example
	// bad.tree.example. is blocked by tree.example
	// www.good.tree.example. is allowed by good.tree.example
}
