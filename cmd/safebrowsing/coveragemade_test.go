package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// made is a feed with known truth.
type made struct {
	text       string
	want       tally
	addresses  int
	private    int
	duplicates int
	bad        int
	byList     map[string]int
	prefixes   map[lookup.Prefix]bool // of its URLs, that a list holds
}

// kinds of URLs of a made feed.
const (
	ofNoList = iota
	ofHost
	ofParent
	ofPage
	ofFolder
	ofQuery
	ofBoth
	ofCollision // a list has the prefix of its host, and the service knows no threat
	ofAddress
	ofPrivate
	ofSpelling // the URL before in another spelling
	ofNothing  // a line without a URL
	numKinds
)

// makeFeed makes a feed of n URLs, and has the server list what it says. All kinds are as frequent.
func makeFeed(s *protocoltest.Server, n int, seed uint64) *made {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &made{byList: make(map[string]int), prefixes: make(map[lookup.Prefix]bool)}
	entries := map[string][][]byte{"se-4b": nil, "mw-4b": nil, "uws-4b": nil}
	threat := map[string]sbv5.ThreatType{"se-4b": sbv5.ThreatType_SOCIAL_ENGINEERING, "mw-4b": sbv5.ThreatType_MALWARE}
	list := func(expression, name string, confirmed bool) {
		hash := lookup.HashExpression(expression)
		entries[name] = append(entries[name], hash[:4])
		m.prefixes[hash.Prefix(4)] = true
		if confirmed {
			s.AddThreat(expression, threat[name])
		}
	}
	var lines strings.Builder
	last := ""
	for i := 0; m.want.URLs < n; i++ {
		name := []string{"se-4b", "mw-4b"}[r.IntN(2)]
		host := fmt.Sprintf("www.h%d-%d.%s", i, r.Uint32(), []string{"com", "co.uk", "github.io", "example"}[r.IntN(4)])
		parent := strings.TrimPrefix(host, "www.")
		url, f := fmt.Sprintf("http://%s/a/%d/x.html?q=%d", host, i, i), notListed
		kind := r.IntN(numKinds)
		if kind >= ofSpelling && last == "" {
			kind = ofNoList
		}
		switch kind {
		case ofHost:
			list(host+"/", name, true)
			f = byHost
		case ofParent:
			list(parent+"/", name, true)
			f = byHost
		case ofPage:
			list(fmt.Sprintf("%s/a/%d/x.html", host, i), name, true)
			f = byPath
		case ofFolder:
			list(parent+"/a/", name, true)
			f = byPath
		case ofQuery:
			list(fmt.Sprintf("%s/a/%d/x.html?q=%d", host, i, i), name, true)
			f = byPath
		case ofBoth:
			list(host+"/", name, true)
			list(host+"/a/", name, true)
			f = byHost
		case ofCollision:
			list(host+"/", name, false)
		case ofAddress:
			address := fmt.Sprintf("198.%d.%d.1", i>>8, i&255) // not twice: there are 65,536
			url = fmt.Sprintf("http://%s:8080/x%d", address, i)
			list(address+"/", name, true)
			f = byPath
			m.addresses++
		case ofPrivate:
			url = fmt.Sprintf("https://nas%d.home.arpa/%d", i, i)
			m.private++
		case ofSpelling:
			fmt.Fprintf(&lines, "%s#again\n", strings.Replace(last, "http", "HTTP", 1))
			m.duplicates++
			continue
		case ofNothing:
			fmt.Fprintln(&lines, []string{"http://", "chrome://newtab/", "javascript:void(0)", "word"}[r.IntN(4)])
			m.bad++
			continue
		}
		m.want.add(f)
		if f != notListed {
			m.byList[name]++
		}
		fmt.Fprintln(&lines, url)
		last = url
	}
	for name, all := range entries {
		s.Publish(name, all)
	}
	m.text = lines.String()
	return m
}
