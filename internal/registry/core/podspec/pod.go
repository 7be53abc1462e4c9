// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// ValidatePodCreate checks a new pod.
func ValidatePodCreate(c *check.Checker, pod *v1.Pod) {
	path := field.NewPath("spec")
	validatePod(c, pod)
	if len(pod.Spec.EphemeralContainers) > 0 {
		c.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create")
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		c.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
	}
	validateProfilesMatch(c, pod.Annotations, &pod.Spec, path)
}

// validatePod checks the rules that hold on create and on every update.
func validatePod(c *check.Checker, pod *v1.Pod) {
	metaPath, specPath := field.NewPath("metadata"), field.NewPath("spec")
	validateMetadata(c, &pod.ObjectMeta, metaPath)
	validateAnnotations(c, pod.Annotations, &pod.Spec, metaPath.Child("annotations"))
	validateSpec(c, &pod.Spec, &pod.ObjectMeta, specPath)
	validatePodOnly(c, &pod.Spec, specPath)
}

// validatePodOnly checks rules that apply to pods but, for compatibility, not to templates.
func validatePodOnly(c *check.Checker, spec *v1.PodSpec, path *field.Path) {
	if spec.ServiceAccountName == "" {
		forbidTokens(c, spec.Volumes, path.Child("volumes"))
	}
	if grace := spec.TerminationGracePeriodSeconds; grace != nil {
		c.NonNegative(path.Child("terminationGracePeriodSeconds"), *grace)
	}
	for i := range spec.Containers {
		validateTrimmedImage(c, &spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.InitContainers {
		validateTrimmedImage(c, &spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
}

// forbidTokens forbids projected tokens in a pod without a service account.
func forbidTokens(c *check.Checker, volumes []v1.Volume, path *field.Path) {
	for i, volume := range volumes {
		if volume.Projected == nil {
			continue
		}
		for j, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil {
				c.Forbidden(path.Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set")
			}
		}
	}
}

func validateMetadata(c *check.Checker, meta *metav1.ObjectMeta, path *field.Path) {
	c.Add(apivalidation.ValidateObjectMeta(meta, true, apivalidation.NameIsDNSSubdomain, path)...)
	validateFinalizers(c, meta.Finalizers, path.Child("finalizers"))
}

func validateMetadataUpdate(c *check.Checker, meta, old *metav1.ObjectMeta, path *field.Path) {
	c.Add(apivalidation.ValidateObjectMetaUpdate(meta, old, path)...)
	validateFinalizers(c, meta.Finalizers, path.Child("finalizers"))
}

// ValidatePodTemplateSpec checks a template at path, as it is created and after
// an update.
func ValidatePodTemplateSpec(c *check.Checker, template *v1.PodTemplateSpec, path *field.Path) {
	specPath := path.Child("spec")
	ValidatePodTemplateMeta(c, template, path)
	validateSpec(c, &template.Spec, nil, specPath)
	validateProfilesMatch(c, template.Annotations, &template.Spec, specPath)
	if len(template.Spec.EphemeralContainers) > 0 {
		c.Forbidden(specPath.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
}

// ValidatePodTemplateMeta checks the labels and annotations of a template.
func ValidatePodTemplateMeta(c *check.Checker, template *v1.PodTemplateSpec, path *field.Path) {
	annotations := path.Child("annotations")
	c.Labels(path.Child("labels"), template.Labels)
	c.Add(apivalidation.ValidateAnnotations(template.Annotations, annotations)...)
	validateAnnotations(c, template.Annotations, &template.Spec, annotations)
}

// ValidatePodTemplate checks the object of kind PodTemplate.
func ValidatePodTemplate(c *check.Checker, template *v1.PodTemplate) {
	validateMetadata(c, &template.ObjectMeta, field.NewPath("metadata"))
	ValidatePodTemplateSpec(c, &template.Template, field.NewPath("template"))
}

// ValidatePodTemplateUpdate checks an update of an object of kind PodTemplate. The whole template
// may change.
func ValidatePodTemplateUpdate(c *check.Checker, template, old *v1.PodTemplate) {
	validateMetadataUpdate(c, &template.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	ValidatePodTemplateSpec(c, &template.Template, field.NewPath("template"))
}

// ValidatePodBinding checks the assignment of a pod to a node.
func ValidatePodBinding(c *check.Checker, binding *v1.Binding) {
	path, target := field.NewPath("target"), binding.Target
	isNode := target.Kind == "" || target.Kind == "Node"
	if !isNode {
		c.Add(field.NotSupported(path.Child("kind"), target.Kind, []string{"Node", "<empty>"}))
	}
	if c.NonEmpty(path.Child("name"), target.Name) && isNode {
		c.DNSSubdomain(path.Child("name"), target.Name)
	}
}
