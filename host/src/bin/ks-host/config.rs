//! `--config` for several plugins: assigns each setting to its plugins.

use anyhow::bail;
use ks_host::PreparedPlugin;
use ks_host::world::SettingError;

/// Returns the settings of each plugin, in the order of the plugins.
///
/// `PLUGIN:limits.burst=7` is for the plugin with this name in messages. A setting without a plugin applies
/// to every plugin that has the field.
///
/// # Errors
/// If a setting names a plugin that is not there, or no plugin has the field.
pub(crate) fn of_each(
    arguments: &[String],
    plugins: &[(&str, &PreparedPlugin)],
) -> anyhow::Result<Vec<Vec<String>>> {
    let mut each = vec![Vec::new(); plugins.len()];
    for argument in arguments {
        let (name, setting) = addressed(argument);
        let mut known = Vec::new();
        match name {
            Some(name) => known.extend(plugins.iter().position(|(plugin, _)| *plugin == name)),
            // A single plugin reports a wrong setting best itself.
            None if plugins.len() == 1 => known.push(0),
            None => {
                let has_it = |(_, plugin): &(&str, &PreparedPlugin)| {
                    !matches!(
                        plugin.settings(std::slice::from_ref(&setting)),
                        Err(SettingError::Unknown { .. })
                    )
                };
                known.extend((0..plugins.len()).filter(|target| has_it(&plugins[*target])));
            }
        }
        if known.is_empty() {
            let names = plugins.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            match name {
                Some(name) => bail!("--config {argument}: there is no plugin `{name}`; there is {names}"),
                None => bail!("--config {argument}: none of the plugins has this field: {names}"),
            }
        }
        known.into_iter().for_each(|target| each[target].push(setting.clone()));
    }
    Ok(each)
}

/// Splits a setting from the plugin that it addresses. A value may contain colons, too.
fn addressed(argument: &str) -> (Option<&str>, String) {
    let target = argument.split_once('=').map_or(argument, |(target, _)| target);
    match target.rsplit_once(':') {
        Some((name, _)) => (Some(name), argument[name.len() + 1..].to_owned()),
        None => (None, argument.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_stands_before_a_colon() {
        let read = |argument: &str| {
            let (name, setting) = addressed(argument);
            (name.map(str::to_owned), setting)
        };
        assert_eq!(read("limits.burst=7"), (None, "limits.burst=7".into()));
        assert_eq!(read("a.wasm:limits.burst=7"), (Some("a.wasm".into()), "limits.burst=7".into()));
        assert_eq!(read("b:a.wasm:limits.burst"), (Some("b:a.wasm".into()), "limits.burst".into()));
        assert_eq!(read("limits.letter=:"), (None, "limits.letter=:".into()));
    }
}
