package protocol

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The environment is read once in a process, so that another one is needed: this
// test binary, which runs only the second test below.
func TestHTTPSProxyIsHonoured(t *testing.T) {
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Method + " " + r.Host:
		default:
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	child := exec.Command(os.Args[0], "-test.run", "^TestFetchInAnotherProcess$")
	child.Env = append(os.Environ(), "HTTPS_PROXY="+proxy.URL, "NO_PROXY=", "no_proxy=", childVariable+"=1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	select {
	case got := <-asked:
		if want := "CONNECT safebrowsing.example:443"; got != want {
			t.Errorf("the proxy was asked %q, want %q", got, want)
		}
	default:
		t.Error("the proxy was not asked")
	}
}

const childVariable = "SAFEBROWSING_TEST_CHILD"

func TestFetchInAnotherProcess(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		return // it is half of the test above
	}
	c, err := NewV5(Config{Endpoint: "https://safebrowsing.example", UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t, c, updater.Want{List: "se-4b"}); err == nil {
		t.Error("fetched through a proxy that refuses")
	}
}
