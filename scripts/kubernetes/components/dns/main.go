// Command dns resolves names of services and of their pods in a cluster of one node. It asks the API
// server at every question: always right, and quick enough for a test.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	suffix = ".svc.cluster.local."
	// Pods that are replaced take other addresses.
	lifetimeSeconds = 2
)

type names struct{ api kubernetes.Interface }

// addresses returns those of SERVICE.NAMESPACE or POD.SERVICE.NAMESPACE, and whether there is such.
func (n names) addresses(name string) ([]string, bool) {
	parts := strings.Split(name, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return nil, false
	}
	service, namespace := parts[len(parts)-2], parts[len(parts)-1]
	ctx := context.Background()
	found, err := n.api.CoreV1().Services(namespace).Get(ctx, service, meta.GetOptions{})
	if err != nil {
		return nil, false
	}
	if len(parts) == 2 && found.Spec.ClusterIP != corev1.ClusterIPNone {
		return []string{found.Spec.ClusterIP}, true
	}
	slices, err := n.api.DiscoveryV1().EndpointSlices(namespace).List(ctx, meta.ListOptions{
		LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		return nil, false
	}
	var all []string
	for _, slice := range slices.Items {
		for _, one := range slice.Endpoints {
			isReady := found.Spec.PublishNotReadyAddresses ||
				one.Conditions.Ready == nil || *one.Conditions.Ready
			isMeant := len(parts) == 2 || one.Hostname != nil && *one.Hostname == parts[0]
			if isReady && isMeant {
				all = append(all, one.Addresses...)
			}
		}
	}
	return all, len(parts) == 2 || len(all) > 0
}

func (n names) ServeDNS(out dns.ResponseWriter, question *dns.Msg) {
	answer := new(dns.Msg)
	answer.SetReply(question)
	answer.Authoritative = true
	asked := question.Question[0]
	found, exists := n.addresses(strings.TrimSuffix(strings.ToLower(asked.Name), suffix))
	if !strings.HasSuffix(asked.Name, suffix) || !exists {
		answer.Rcode = dns.RcodeNameError
	} else if asked.Qtype == dns.TypeA {
		for _, address := range found {
			answer.Answer = append(answer.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeA, Class: dns.ClassINET,
					Ttl: lifetimeSeconds},
				A: net.ParseIP(address)})
		}
	}
	_ = out.WriteMsg(answer)
}

func main() {
	address := flag.String("listen", "127.0.0.1:53", "HOST:PORT")
	kubeconfig := flag.String("kubeconfig", "", "path")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = 500, 1000
	handler := names{kubernetes.NewForConfigOrDie(config)}
	for _, network := range []string{"udp", "tcp"} {
		server := &dns.Server{Addr: *address, Net: network, Handler: handler}
		go func() { log.Fatal(server.ListenAndServe()) }()
	}
	select {}
}
