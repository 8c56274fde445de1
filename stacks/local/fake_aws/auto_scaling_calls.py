"""The calls of Auto Scaling over HTTP that moto lacks, or of which it reads too little."""

from __future__ import annotations

from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from stacks.local.fake_aws.auto_scaling import AutoScaling
from stacks.local.fake_aws.launches import Asked, launch_instances


class AutoScalingCalls(AutoScalingResponse):
    """The calls that moto lacks, or of which it reads too little."""

    def delete_auto_scaling_group(self) -> ActionResult:
        """Deletes a group, with its instances where ``ForceDelete`` says so."""
        self._backend.delete_auto_scaling_group(
            self._get_param("AutoScalingGroupName"), force=bool(self._get_bool_param("ForceDelete"))
        )
        return EmptyResult()

    def update_auto_scaling_group(self) -> ActionResult:
        """Updates a group with its placement group, which moto leaves as it was."""
        result = super().update_auto_scaling_group()
        placement = self._get_param("PlacementGroup")
        if placement is not None:
            self._backend.group(self._get_param("AutoScalingGroupName")).placement_group = placement or None
        return result

    def describe_scaling_activities(self) -> ActionResult:
        """Describes activities in pages, the newest first."""
        name, ids = self._get_param("AutoScalingGroupName"), self._get_param("ActivityIds", [])
        if name and not self._get_bool_param("IncludeDeletedGroups"):
            self._backend.group(name)
        found = [
            activity
            for activity in reversed(self._backend.activities)
            if name in (None, activity.auto_scaling_group_name) and (not ids or activity.activity_id in ids)
        ]
        start, size = int(self._get_param("NextToken") or 0), self._get_int_param("MaxRecords") or 100
        token = str(start + size) if len(found) > start + size else None
        return ActionResult({"Activities": found[start : start + size], "NextToken": token})

    def launch_instances(self) -> ActionResult:
        """Launches instances before it answers."""
        asked = Asked(
            group=self._get_param("AutoScalingGroupName"),
            count=self._get_int_param("RequestedCapacity"),
            zones=tuple(self._get_param("AvailabilityZones", [])),
            subnets=tuple(self._get_param("SubnetIds", [])),
            retry=self._get_param("RetryStrategy") or "none",
        )
        return ActionResult(launch_instances(self._backend, asked, token=self._get_param("ClientToken")))

    def put_lifecycle_hook(self) -> ActionResult:
        """Adds a hook to a group that is there."""
        self._backend.group(self._get_param("AutoScalingGroupName"))
        return super().put_lifecycle_hook()

    def complete_lifecycle_action(self) -> ActionResult:
        """Completes the action of one instance."""
        self._backend.complete_lifecycle_action(
            hook=self._get_param("LifecycleHookName"),
            group=self._get_param("AutoScalingGroupName"),
            result=self._get_param("LifecycleActionResult"),
            instance=self._get_param("InstanceId"),
        )
        return EmptyResult()

    def record_lifecycle_action_heartbeat(self) -> ActionResult:
        """Lengthens the action of one instance."""
        self._backend.record_heartbeat(
            hook=self._get_param("LifecycleHookName"),
            group=self._get_param("AutoScalingGroupName"),
            instance=self._get_param("InstanceId"),
        )
        return EmptyResult()

    @property
    def _backend(self) -> AutoScaling:
        backend: AutoScaling = self.autoscaling_backend  # type: ignore[assignment]  # `installed` sees to it
        return backend
