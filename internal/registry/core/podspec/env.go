// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// ValidateEnv checks the environment variables at path.
func ValidateEnv(c *check.Checker, vars []v1.EnvVar, path *field.Path) {
	for i := range vars {
		at := path.Index(i)
		if c.NonEmpty(at.Child("name"), vars[i].Name) {
			c.Invalid(at.Child("name"), vars[i].Name, validation.IsRelaxedEnvVarName(vars[i].Name)...)
		}
		if vars[i].ValueFrom != nil {
			validateValueFrom(c, &vars[i], at.Child("valueFrom"))
		}
	}
}

func validateValueFrom(c *check.Checker, env *v1.EnvVar, path *field.Path) {
	from, sources := env.ValueFrom, 0
	if ref := from.FieldRef; ref != nil {
		sources++
		validateFieldRef(c, ref, envFields, path.Child("fieldRef"))
	}
	if ref := from.ResourceFieldRef; ref != nil {
		sources++
		validateResourceFieldRef(c, ref, path.Child("resourceFieldRef"))
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		validateKeyRef(c, ref.Name, ref.Key, path.Child("configMapKeyRef"))
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		validateKeyRef(c, ref.Name, ref.Key, path.Child("secretKeyRef"))
	}
	if ref := from.FileKeyRef; ref != nil {
		sources++
		validateFileKeyRef(c, ref, path.Child("fileKeyRef"))
	}
	switch {
	case sources == 0:
		c.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case env.Value != "":
		c.Invalid(path, "", "may not be specified when `value` is not empty")
	case sources > 1:
		c.Invalid(path, "", "may not have more than one field specified at a time")
	}
}

func validateKeyRef(c *check.Checker, name, key string, path *field.Path) {
	c.DNSSubdomain(path.Child("name"), name)
	if c.NonEmpty(path.Child("key"), key) {
		c.Invalid(path.Child("key"), key, validation.IsConfigMapKey(key)...)
	}
}

func validateFileKeyRef(c *check.Checker, ref *v1.FileKeySelector, path *field.Path) {
	if c.NonEmpty(path.Child("key"), ref.Key) {
		c.Invalid(path.Child("key"), ref.Key, validation.IsRelaxedEnvVarName(ref.Key)...)
	}
	c.RequiredDNSLabel(path.Child("volumeName"), ref.VolumeName)
	if c.NonEmpty(path.Child("path"), ref.Path) {
		c.NoBacksteps(path.Child("path"), ref.Path)
	}
}

// fileKeyVolumes requires that files of environment variables (KEP-3721) are in an emptyDir, which
// only the pod's own containers can write.
func (c *specChecker) fileKeyVolumes(path *field.Path) {
	for at, container := range allContainers(c.spec, path) {
		for i, env := range container.Env {
			if env.ValueFrom == nil || env.ValueFrom.FileKeyRef == nil {
				continue
			}
			name := env.ValueFrom.FileKeyRef.VolumeName
			namePath := at.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			// A later volume of the same name, itself an error, hides the first.
			switch volume := lastVolume(c.spec.Volumes, name); {
			case volume == nil:
				c.Add(field.NotFound(namePath, name))
			case volume.EmptyDir == nil:
				c.Invalid(namePath, name, "referenced volume must be of type emptyDir")
			}
		}
	}
}

func lastVolume(volumes []v1.Volume, name string) *v1.Volume {
	for i := range slices.Backward(volumes) {
		if volumes[i].Name == name {
			return &volumes[i]
		}
	}
	return nil
}

func validateEnvFrom(c *check.Checker, sources []v1.EnvFromSource, path *field.Path) {
	for i, source := range sources {
		at := path.Index(i)
		if source.Prefix != "" {
			c.Invalid(at.Child("prefix"), source.Prefix, validation.IsRelaxedEnvVarName(source.Prefix)...)
		}
		if source.ConfigMapRef != nil {
			validateEnvFromName(c, source.ConfigMapRef.Name, at.Child("configMapRef"))
		}
		if source.SecretRef != nil {
			validateEnvFromName(c, source.SecretRef.Name, at.Child("secretRef"))
		}
		switch {
		case source.ConfigMapRef == nil && source.SecretRef == nil:
			c.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
		case source.ConfigMapRef != nil && source.SecretRef != nil:
			c.Invalid(path, "", "may not have more than one field specified at a time")
		}
	}
}

func validateEnvFromName(c *check.Checker, name string, path *field.Path) {
	if c.NonEmpty(path.Child("name"), name) {
		c.Invalid(path.Child("name"), name, apivalidation.NameIsDNSSubdomain(name, true)...)
	}
}

// Fields of a pod that the downward API exposes as environment variables and as files.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	fileFields = []string{
		"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
	}
	// otherFields are fields of a pod that field selectors know but the downward API does not
	// expose. A reference to one is "not supported" rather than "invalid".
	otherFields = []string{"spec.restartPolicy", "spec.schedulerName", "status.phase"}
)

// validateFieldRef checks a reference to one of the fields, or to a single label or
// annotation: metadata.labels['app'].
func validateFieldRef(c *check.Checker, ref *v1.ObjectFieldSelector, fields []string, path *field.Path) {
	if !c.NonEmpty(path.Child("apiVersion"), ref.APIVersion) || !c.NonEmpty(path.Child("fieldPath"), ref.FieldPath) {
		return
	}
	wrong := func(format, value string) {
		c.Invalid(path.Child("fieldPath"), ref.FieldPath, fmt.Sprintf("error converting fieldPath: "+format, value))
	}
	if ref.APIVersion != "v1" {
		wrong("unsupported pod version: %s", ref.APIVersion)
		return
	}
	if name, key, found := subscripted(ref.FieldPath); found {
		switch name {
		case "metadata.annotations":
			c.QualifiedName(path, strings.ToLower(key))
		case "metadata.labels":
			c.QualifiedName(path, key)
		default:
			wrong("field label does not support subscript: %s", ref.FieldPath)
		}
		return
	}
	name := ref.FieldPath
	if name == "spec.host" { // what the first clients called it
		name = "spec.nodeName"
	}
	if !slices.Contains(envFields, name) && !slices.Contains(fileFields, name) && !slices.Contains(otherFields, name) {
		wrong("field label not supported: %s", name)
		return
	}
	check.OneOf(c, path.Child("fieldPath"), name, fields...)
}

// subscripted splits name['key'].
func subscripted(path string) (name, key string, found bool) {
	rest, found := strings.CutSuffix(path, "']")
	if !found {
		return "", "", false
	}
	name, key, found = strings.Cut(rest, "['")
	return name, key, found && name != ""
}

// containerFields are the resources of a container that the downward API exposes. Huge pages of any
// size come on top.
var containerFields = []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory",
	"requests.cpu", "requests.ephemeral-storage", "requests.memory",
}

func isHugePageField(resource string) bool {
	return strings.HasPrefix(resource, "limits.hugepages-") || strings.HasPrefix(resource, "requests.hugepages-")
}

// validateResourceFieldRef checks a reference to a resource of the container itself.
func validateResourceFieldRef(c *check.Checker, ref *v1.ResourceFieldSelector, path *field.Path) {
	if c.NonEmpty(path.Child("resource"), ref.Resource) && !isHugePageField(ref.Resource) {
		check.OneOf(c, path.Child("resource"), ref.Resource, containerFields...)
	}
	validateDivisor(c, ref, path.Child("divisor"))
}

const byteDivisors = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"

func validateDivisor(c *check.Checker, ref *v1.ResourceFieldSelector, path *field.Path) {
	if ref.Divisor.IsZero() {
		return
	}
	divisor, kind, supported := ref.Divisor.String(), "", byteDivisors
	switch _, name, _ := strings.Cut(ref.Resource, "."); {
	case isHugePageField(ref.Resource):
		kind = "hugepages"
	case !slices.Contains(containerFields, ref.Resource):
		return
	case name == "cpu":
		kind, supported = "cpu", "1m, 1"
	case name == "memory":
		kind = "memory"
	case name == "ephemeral-storage":
		kind = "local ephemeral storage"
	}
	if slices.Contains(strings.Split(supported, ", "), divisor) {
		return
	}
	if kind == "cpu" {
		supported = "1m and 1"
	}
	c.Invalid(path, ref.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", supported, kind))
}
