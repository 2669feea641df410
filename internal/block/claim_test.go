package block

import (
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

func TestTwoEnginesForOneKeyOrInOneFolderAreRefused(t *testing.T) {
	with := func(key, db string, cache int) *Block {
		return New(config.Config{Online: true, Secret: key, Engine: config.Engine{APIKey: key, DB: db, Cache: cache}})
	}
	for _, tc := range []struct {
		name         string
		first, again *Block
		want         string
	}{
		{"equal settings", with("A", "/db", 0), with("A", "/db", 0), ""},
		{"another key in another folder", with("A", "/db", 0), with("B", "/other", 0), ""},
		{"another key without folders", with("A", "", 0), with("B", "", 0), ""},
		{"another key in the same folder", with("A", "/db", 0), with("B", "/db", 0), "own db"},
		{"the same key in another folder", with("A", "/db", 0), with("A", "/other", 0), "with the same key"},
		{"the same key with another cache", with("A", "", 0), with("A", "", 7), "with the same key"},
		{"own lists only", New(config.Config{}), New(config.Config{}), ""},
	} {
		var c Claims
		if err := c.Add(tc.first); err != nil {
			t.Fatal(err)
		}
		err := c.Add(tc.again)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Expected %q, got %v", tc.name, tc.want, err)
		}
	}
}

func TestServerBlocksWithSomeEndpointsInCommonAreRefused(t *testing.T) {
	with := func(key, endpoints string) *Block {
		return New(config.Config{Online: true, Secret: key, Engine: config.Engine{APIKey: key, Endpoint: endpoints}})
	}
	for _, tc := range []struct {
		first, again *Block
		want         string
	}{
		{with("", "http://a http://b"), with("", "http://a http://b"), ""},
		{with("", "http://a http://b"), with("", "http://c http://d"), ""},
		{with("K", "http://a http://b"), with("L", "http://b http://a"), ""},
		{with("", "http://a http://b"), with("", "http://b"), "asks http://b with the same key and other endpoints"},
		{with("", "http://b"), with("", "http://a http://b"), "asks http://b with"},
		{with("", "http://a http://b"), with("", "http://b http://a"), "in the same order"},
	} {
		var c Claims
		if err := c.Add(tc.first); err != nil {
			t.Fatal(err)
		}
		if err := c.Add(tc.again); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q after %q: Expected %q, got %v", tc.again.Settings.Endpoint, tc.first.Settings.Endpoint, tc.want, err)
		}
	}
}
