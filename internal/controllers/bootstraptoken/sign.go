// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstraptoken

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// SignerName is the signer's identity.
const SignerName = "bootstrap-signer"

var clusterInfo = client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}

// AddSigner registers the signer. It watches the ConfigMap and tokens.
func AddSigner(env control.Env) error {
	secrets, err := tokens(env)
	if err != nil {
		return err
	}
	isClusterInfo := predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == clusterInfo })
	wake := handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *corev1.Secret) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: clusterInfo}}
	})
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(SignerName).
		WithOptions(env.Options(1)).
		For(&corev1.ConfigMap{}, builder.WithPredicates(isClusterInfo)).
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, wake)).
		Complete(&signer{client: env.Client, secrets: secrets, clock: env.Clock})
}

type signer struct {
	client  client.Client
	secrets client.Reader
	clock   clock.PassiveClock
}

// Reconcile updates the signatures of the ConfigMap for the existing tokens.
func (s *signer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	found := &corev1.ConfigMap{}
	if err := s.client.Get(ctx, req.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, ok := found.Data[bootstrapapi.KubeConfigKey]; !ok {
		return ctrl.Result{}, nil
	}
	all := &corev1.SecretList{}
	if err := s.secrets.List(ctx, all); err != nil {
		return ctrl.Result{}, err
	}
	data := signed(found.Data, all.Items, s.clock.Now())
	if maps.Equal(data, found.Data) {
		return ctrl.Result{}, nil
	}
	found = found.DeepCopy()
	found.Data = data
	return ctrl.Result{}, owned.IgnoreStale(s.client.Update(ctx, found))
}

// signed returns the ConfigMap's data with exactly one signature for each token.
func signed(data map[string]string, secrets []corev1.Secret, now time.Time) map[string]string {
	out := maps.Clone(data)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, bootstrapapi.JWSSignatureKeyPrefix) })
	for i := range secrets {
		if id, secret, ok := forSigning(&secrets[i], now); ok {
			out[bootstrapapi.JWSSignatureKeyPrefix+id] = signature(data[bootstrapapi.KubeConfigKey], id, secret)
		}
	}
	return out
}

// forSigning returns the ID and the secret of a token that is valid for signing.
func forSigning(secret *corev1.Secret, now time.Time) (id, key string, ok bool) {
	name, wellNamed := bootstrapsecrets.ParseName(secret.Name)
	id = bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenIDKey)
	key = bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenSecretKey)
	ok = wellNamed && id != "" && name == id && key != "" && !bootstrapsecrets.HasExpired(secret, now) &&
		bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenUsageSigningKey) == "true"
	return id, key, ok
}

// signature returns a JSON Web Signature with HMAC SHA-256 (RFC 7515, RFC 7518 section 3.2) and
// detached content (RFC 7515 appendix F).
func signature(content, id, key string) string {
	// A struct of two strings can always be encoded.
	header, _ := json.Marshal(struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}{"HS256", id})
	encode := base64.RawURLEncoding.EncodeToString
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(encode(header) + "." + encode([]byte(content))))
	return encode(header) + ".." + encode(mac.Sum(nil))
}
