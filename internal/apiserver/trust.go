// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/client-go/kubernetes"
)

// trustName is the ConfigMap from which extension API servers learn how to authenticate: the authorities
// that issue the certificates of clients and of the aggregator, and the headers in which the aggregator
// passes on the user. Without it, servers built on k8s.io/apiserver do not become ready.
const trustName = "extension-apiserver-authentication"

// trust returns its data, with the keys that k8s.io/apiserver reads.
func (a *access) trust() (map[string]string, error) {
	data := map[string]string{
		"client-ca-file":               string(a.clientCA.CurrentCABundleContent()),
		"requestheader-client-ca-file": string(a.frontProxyCA.CurrentCABundleContent()),
	}
	for key, values := range map[string]headerrequest.StringSliceProvider{
		"requestheader-allowed-names":        a.frontProxy.AllowedClientNames,
		"requestheader-username-headers":     a.frontProxy.UsernameHeaders,
		"requestheader-uid-headers":          a.frontProxy.UIDHeaders,
		"requestheader-group-headers":        a.frontProxy.GroupHeaders,
		"requestheader-extra-headers-prefix": a.frontProxy.ExtraHeaderPrefixes,
	} {
		list, err := json.Marshal(values.Value())
		if err != nil {
			return nil, err
		}
		data[key] = string(list)
	}
	return data, nil
}

// ensureTrust creates the ConfigMap, or corrects its data. Keys of others stay.
func ensureTrust(ctx context.Context, client kubernetes.Interface, data map[string]string) error {
	configs := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	found, err := configs.Get(ctx, trustName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = configs.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: trustName}, Data: data}, metav1.CreateOptions{})
		return ignoreAlreadyExists(err)
	}
	if err != nil {
		return err
	}
	want := maps.Clone(found.Data)
	if want == nil {
		want = map[string]string{}
	}
	maps.Copy(want, data)
	if maps.Equal(want, found.Data) {
		return nil
	}
	found.Data = want
	_, err = configs.Update(ctx, found, metav1.UpdateOptions{})
	return err
}
