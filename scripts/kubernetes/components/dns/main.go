// Command dns is CoreDNS with what a small cluster needs of it: names of services and pods.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which a question passes through them.
	dnsserver.Directives = []string{"health", "ready", "bind", "errors", "cache", "kubernetes"}
	coremain.Run()
}
