// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compile turns objects of the API into the model of package route, as pure functions.
package compile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ingress/route"
)

// Problem is something that an object asks for and does not get. It becomes an event.
type Problem struct {
	Object          runtime.Object
	UID             types.UID
	Reason, Message string
}

// Objects finds what Ingresses and routes refer to. The functions return nil for objects that do not exist.
type Objects struct {
	Service func(namespace, name string) *v1.Service
	Secret  func(namespace, name string) *v1.Secret
	// Certificates parses the certificates of Secrets.
	Certificates *Certificates
}

// Certificates parses the certificates of Secrets, and remembers the result until the Secret changes.
type Certificates struct {
	mutex  sync.Mutex
	parsed map[types.UID]parsed
}

type parsed struct {
	version     string
	certificate *tls.Certificate
	err         error
}

// Of returns the certificate of a Secret of the type kubernetes.io/tls.
func (c *Certificates) Of(secret *v1.Secret) (*tls.Certificate, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if known, ok := c.parsed[secret.UID]; ok && known.version == secret.ResourceVersion && secret.ResourceVersion != "" {
		return known.certificate, known.err
	}
	certificate, err := parse(secret)
	if c.parsed == nil {
		c.parsed = map[types.UID]parsed{}
	}
	c.parsed[secret.UID] = parsed{secret.ResourceVersion, certificate, err}
	return certificate, err
}

// Forget forgets a Secret.
func (c *Certificates) Forget(uid types.UID) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.parsed, uid)
}

func parse(secret *v1.Secret) (*tls.Certificate, error) {
	certificate, err := tls.X509KeyPair(secret.Data[v1.TLSCertKey], secret.Data[v1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s are no certificate with its key: %s", v1.TLSCertKey, v1.TLSPrivateKeyKey, strings.TrimPrefix(err.Error(), "tls: "))
	}
	if certificate.Leaf == nil {
		if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &certificate, nil
}

// errMissing is that of objects that do not exist.
var errMissing = errors.New("does not exist")

func (o Objects) certificate(namespace, name string) (*tls.Certificate, error) {
	secret := o.Secret(namespace, name)
	if secret == nil {
		return nil, fmt.Errorf("no Secret %s/%s of the type %s", namespace, name, v1.SecretTypeTLS)
	}
	certificate, err := o.Certificates.Of(secret)
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s: %w", namespace, name, err)
	}
	return certificate, nil
}

// backend returns the backend for a port of a Service, which matches the given one. The error says why there is none;
// it is errMissing if the Service does not exist.
func (o Objects) backend(namespace, name string, is func(v1.ServicePort) bool) (route.Backend, error) {
	svc := o.Service(namespace, name)
	if svc == nil {
		return route.Backend{}, fmt.Errorf("the Service %s/%s %w", namespace, name, errMissing)
	}
	if svc.Spec.Type == v1.ServiceTypeExternalName {
		return route.Backend{}, fmt.Errorf("the Service %s/%s is of the type ExternalName, which is not supported here: it could reach any address that this machine can", namespace, name)
	}
	for _, p := range svc.Spec.Ports {
		if is(p) && (p.Protocol == v1.ProtocolTCP || p.Protocol == "") {
			return route.Backend{Service: namespace + "/" + name, Port: p.Port, Protocol: protocolOf(p), Weight: 1}, nil
		}
	}
	return route.Backend{}, fmt.Errorf("the Service %s/%s has no such TCP port", namespace, name)
}

// protocolOf returns the protocol that a port's appProtocol names. WebSockets (kubernetes.io/ws) begin as HTTP/1.1.
func protocolOf(p v1.ServicePort) route.BackendProtocol {
	if p.AppProtocol == nil {
		return route.HTTP1
	}
	switch strings.ToLower(*p.AppProtocol) {
	case "kubernetes.io/h2c", "grpc":
		return route.H2C
	case "https", "kubernetes.io/wss":
		return route.EncryptedHTTP
	}
	return route.HTTP1
}
