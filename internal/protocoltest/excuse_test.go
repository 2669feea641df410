package protocoltest

import "testing"

func TestOnlyWhatARestartForgetsIsExcused(t *testing.T) {
	for violation, want := range map[string]string{
		"protocoltest: Local List Mode, cache: 1 hash prefix asked for again":             "the client was restarted",
		"protocoltest: Request Frequency: lists fetched while another fetch is under way": "the client was restarted and keeps nothing on disk",
		"protocoltest: Request Frequency, minimum wait: list \"se-4b\" asked for":         "the client was restarted and keeps nothing on disk",
		"protocoltest: Web Risk, caching: 1 hash prefix asked for again":                  "the client was restarted",
		"protocoltest: Request Frequency, recommended next diff: list \"se-4b\"":          "the client was restarted and keeps nothing on disk",
		"protocoltest: budget of searches: search 3 of a day that has 2":                  "the client was restarted and keeps nothing on disk",
		"protocoltest: API key: the URL of the request search holds the key":              "",
		"protocoltest: Local Database, version: the version 00 was never served":          "",
		"protocoltest: REST reference, hashes.search: no hash prefix asked for":           "",
	} {
		if got := Excuse(violation); got != want {
			t.Errorf("%s: got %q, want %q", violation, got, want)
		}
	}
}
