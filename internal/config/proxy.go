package config

import (
	"fmt"
	"net/url"
	"os"
	"strings"
)

// proxyVariables are what net/http reads, see http.ProxyFromEnvironment.
var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}

// proxyTrouble returns what is wrong with the proxies of the environment, or "". net/http goes
// without a proxy that it cannot read, and says nothing. The value may hold a password, and is
// not told.
func proxyTrouble() string {
	for _, name := range proxyVariables {
		value := os.Getenv(name)
		if value == "" || isProxy(value) || !strings.Contains(value, "://") && isProxy("http://"+value) {
			continue
		}
		return fmt.Sprintf("$%s is not the URL of a proxy, such as http://proxy.example.org:3128: it is ignored, and servers are asked directly", name)
	}
	return ""
}

// isProxy reports whether net/http takes a text for a proxy.
func isProxy(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return false
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https", "socks5", "socks5h":
		return true
	}
	return false
}
