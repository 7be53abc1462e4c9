// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	defaultExpiration = int64(60 * 60)
	minExpiration     = int64(10 * 60)
	maxExpiration     = int64(1 << 32)

	// warnOnlyExpiration is the unusual expiration that requests for a pod's own token have.
	// Because old clients read the file only once, such a token is valid for a year, and its use
	// after the hour is reported (KEP-1205, safe rollout).
	warnOnlyExpiration = int64(60*60 + 7)
	extendedExpiration = int64(365 * 24 * 60 * 60)
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// Issuer issues tokens.
type Issuer struct {
	url       string
	keys      *Keys
	objects   *Objects
	audiences []string
	clock     clock.PassiveClock
}

// NewIssuer returns an issuer with the given URL. A request without audiences gets the given ones,
// which are the API server's.
func NewIssuer(url string, keys *Keys, objects *Objects, audiences []string, clock clock.PassiveClock) *Issuer {
	return &Issuer{url: url, keys: keys, objects: objects, audiences: audiences, clock: clock}
}

// Request processes a TokenRequest for a service account: it completes, validates and admits the
// request and returns it with the token in its status. Errors are API errors.
func (i *Issuer) Request(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest, admit rest.ValidateObjectFunc) (*authenticationv1.TokenRequest, error) {
	if err := matchURL(request, namespace, name); err != nil {
		return nil, err
	}
	account, err := i.objects.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	now := i.clock.Now()
	request = request.DeepCopy()
	if err := i.complete(request, account, now); err != nil {
		return nil, err
	}
	if errs := Validate(request); len(errs) > 0 {
		return nil, apierrors.NewInvalid(tokenRequestKind.GroupKind(), "", errs)
	}
	if admit != nil {
		if err := admit(ctx, request.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	c := i.claims(account, request, now)
	pod, err := i.bind(ctx, &c, namespace, name, request.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	i.extend(&c, request, pod, now)
	token, err := i.keys.sign(c)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("failed to generate token: %w", err))
	}
	request.Status = authenticationv1.TokenRequestStatus{
		Token:               token,
		ExpirationTimestamp: metav1.Time{Time: now.Add(seconds(*request.Spec.ExpirationSeconds))},
	}
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, tokenjwt.CredentialIDForJTI(c.ID))
	return request, nil
}

// matchURL returns an error if the body and the URL name different service accounts.
func matchURL(request *authenticationv1.TokenRequest, namespace, name string) error {
	meta := field.NewPath("metadata")
	var errs field.ErrorList
	switch {
	case request.Name != "" && request.Name != name:
		errs = append(errs, field.Invalid(meta.Child("name"), request.Name, "must match the service account name if specified"))
	case request.Namespace != "" && request.Namespace != namespace:
		errs = append(errs, field.Invalid(meta.Child("namespace"), request.Namespace, "must match the service account namespace if specified"))
	default:
		return nil
	}
	return apierrors.NewInvalid(tokenRequestKind.GroupKind(), name, errs)
}

// complete sets the optional fields of a request.
func (i *Issuer) complete(request *authenticationv1.TokenRequest, account *corev1.ServiceAccount, now time.Time) error {
	if request.UID != "" && request.UID != account.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: tokenRequestKind.Group, Resource: tokenRequestKind.Kind}, account.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID, account.UID))
	}
	request.Name, request.Namespace, request.UID = account.Name, account.Namespace, account.UID
	request.CreationTimestamp = metav1.NewTime(now)
	request.Status = authenticationv1.TokenRequestStatus{}
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = slices.Clone(i.audiences)
	}
	SetDefaults(request)
	return nil
}

// SetDefaults sets the default expiration of a request.
func SetDefaults(request *authenticationv1.TokenRequest) {
	if request.Spec.ExpirationSeconds == nil {
		request.Spec.ExpirationSeconds = ptr.To(defaultExpiration)
	}
}

// Validate checks a TokenRequest whose defaults are set.
func Validate(request *authenticationv1.TokenRequest) field.ErrorList {
	spec := field.NewPath("spec")
	if len(request.Spec.Attestations) > 0 {
		return field.ErrorList{field.Invalid(spec.Child("attestations"), request.Spec.Attestations,
			"attestations may only be specified with a webhook bound object reference")}
	}
	var errs field.ErrorList
	switch expiration := ptr.Deref(request.Spec.ExpirationSeconds, 0); {
	case expiration < minExpiration:
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), expiration, "may not specify a duration less than 10 minutes"))
	case expiration > maxExpiration:
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), expiration, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

func (i *Issuer) claims(account *corev1.ServiceAccount, request *authenticationv1.TokenRequest, now time.Time) claims {
	return claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    i.url,
			Subject:   serviceaccount.MakeUsername(account.Namespace, account.Name),
			Audience:  request.Spec.Audiences,
			ExpiresAt: jwt.NewNumericDate(now.Add(seconds(*request.Spec.ExpirationSeconds))),
			NotBefore: jwt.NewNumericDate(now),
			IssuedAt:  jwt.NewNumericDate(now),
			ID:        uuid.NewString(),
		},
		Kubernetes: kubernetesClaims{
			Namespace:      account.Namespace,
			ServiceAccount: reference{Name: account.Name, UID: string(account.UID)},
		},
	}
}

// bind adds the object that the token is to be bound to. If it is a pod, bind returns it.
func (i *Issuer) bind(ctx context.Context, c *claims, namespace, account string, ref *authenticationv1.BoundObjectReference) (*corev1.Pod, error) {
	if ref == nil {
		return nil, nil
	}
	if err := checkName(ref.Name); err != nil {
		return nil, err
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		return i.bindPod(ctx, c, namespace, account, ref)
	case schema.GroupKind{Kind: "Node"}:
		node, err := i.objects.client.CoreV1().Nodes().Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		c.Kubernetes.Node = &reference{Name: node.Name, UID: string(node.UID)}
		return nil, sameUID(kind, ref, node.UID)
	case schema.GroupKind{Kind: "Secret"}:
		secret, err := i.objects.secret(ctx, namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		c.Kubernetes.Secret = &reference{Name: secret.Name, UID: string(secret.UID)}
		return nil, sameUID(kind, ref, secret.UID)
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind.String()))
	}
}

// checkName returns an error if a name is invalid.
func checkName(name string) error {
	if name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	if problems := path.IsValidPathSegmentName(name); len(problems) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(problems, ";")))
	}
	return nil
}

// bindPod binds a token to a pod and adds the pod's node, so that a recipient of the token can
// check where it comes from (KEP-4193).
func (i *Issuer) bindPod(ctx context.Context, c *claims, namespace, account string, ref *authenticationv1.BoundObjectReference) (*corev1.Pod, error) {
	pod, err := i.objects.client.CoreV1().Pods(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if pod.Spec.ServiceAccountName != account {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account))
	}
	c.Kubernetes.Pod = &reference{Name: pod.Name, UID: string(pod.UID)}
	if pod.Spec.NodeName != "" {
		node, err := i.objects.anyNode(ctx, pod.Spec.NodeName)
		switch {
		case apierrors.IsNotFound(err):
			c.Kubernetes.Node = &reference{Name: pod.Spec.NodeName}
		case err != nil:
			return nil, apierrors.NewInternalError(err)
		default:
			c.Kubernetes.Node = &reference{Name: node.Name, UID: string(node.UID)}
		}
	}
	return pod, sameUID(corev1.SchemeGroupVersion.WithKind("Pod"), ref, pod.UID)
}

func sameUID(kind schema.GroupVersionKind, ref *authenticationv1.BoundObjectReference, uid types.UID) error {
	if ref.UID == "" || ref.UID == uid {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, ref.Name,
		fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
}

// extend extends the life of a pod's own token; see warnOnlyExpiration.
func (i *Issuer) extend(c *claims, request *authenticationv1.TokenRequest, pod *corev1.Pod, now time.Time) {
	if pod == nil || *request.Spec.ExpirationSeconds != warnOnlyExpiration || !i.areOwn(request.Spec.Audiences) {
		return
	}
	c.Kubernetes.WarnAfter = c.ExpiresAt
	c.ExpiresAt = jwt.NewNumericDate(now.Add(seconds(extendedExpiration)))
}

// areOwn reports whether all audiences are the API server's.
func (i *Issuer) areOwn(audiences []string) bool {
	return !slices.ContainsFunc(audiences, func(a string) bool { return !slices.Contains(i.audiences, a) })
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
