package protocoltest

import (
	"net/http/httptest"
	"testing"
)

func TestV4OnASocket(t *testing.T) {
	s := New(t)
	s.Publish("se-4b", [][]byte{[]byte(entryA), []byte(entryL)})
	server := httptest.NewServer(s)
	defer server.Close()
	client := socket{server: server}
	copies := map[string]*copyOf{}
	for range 20 { // at once again and again: the outcome must be known before
		s.ForgetVersions("se-4b")
		if bad, err := fetchV4(t, client, copies, nil, "se-4b"); err != nil || len(bad) > 0 {
			t.Fatal(bad, err)
		}
	}
	if _, err := findV4(t, client, [][]byte{copies["se-4b"].version}, []string{"se-4b"}, []string{entryL}, nil); err != nil {
		t.Error(err)
	}
}
